//! Secrets: where they come from, what is trimmed, what is refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{Case, SecretSource, fs, minimal};

#[test]
fn newlines_at_the_end_and_a_byte_order_mark_do_not_matter() {
    for bytes in [
        &b"tok"[..],
        b"tok\n",
        b"tok\r\n",
        b"\xef\xbb\xbftok",
        b"\xef\xbb\xbftok\r\n",
        b"tok\n\n",
        b"tok\r",
        b"tok\r\n\r\n\n",
    ] {
        let mut case = Case::new(&minimal(""));
        case.secret("token", bytes);
        assert_eq!(case.load().unwrap().config.accounts[0].app_token.expose(), "tok", "{bytes:?}");
        case.secret("token", b"other");
        case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__APP_TOKEN__ENV", "TOKEN");
        case.variables.push(("TOKEN".into(), OsString::from_vec(bytes.to_vec())));
        assert_eq!(case.load().unwrap().config.accounts[0].app_token.expose(), "tok", "{bytes:?}");
    }
}

#[test]
fn other_control_and_foreign_characters_are_refused_naming_the_file() {
    let long = vec![b'x'; 8193];
    let mut far = b"tok".to_vec();
    far.resize(40_000, b'\n');
    far.extend(b"tik");
    let refused = [
        &b"to\0k"[..],
        b"tok\0",
        b"to\nk",
        b"\ntok",
        b"tok\n \n",
        b"tok\n\nk\n",
        b"to k",
        b"tok\t",
        b"t\x1bok",
        b"tok\x7f",
        b"",
        b"\n",
        b"\r\n\n",
        b"\xef\xbb\xbf",
        b"\xff\xfet\0o\0k\0",
        "t\u{f6}k".as_bytes(),
        "tok\u{2028}".as_bytes(),
        &long,
        &far,
    ];
    for bytes in refused {
        let case = Case::new(&minimal(""));
        case.secret("token", bytes);
        let line = case.load().unwrap_err().to_string();
        let file = case.path("token").display().to_string();
        assert!(line.contains(&format!(": accounts.my-store.app_token: {file} ")), "{bytes:?}: {line}");
        assert!(!line.contains("tok\\") && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn a_token_of_digits_arrives_unchanged_from_everywhere() {
    for token in ["0012300", "1e5", "true", "0x10", "1979-05-27", "a,b"] {
        let mut case = Case::new(&minimal(""));
        case.secret("token", token.as_bytes());
        assert_eq!(case.load().unwrap().config.accounts[0].app_token.expose(), token);
        case.secret("token", b"other");
        case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__APP_TOKEN", token);
        case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__APP_KEY", token);
        let account = case.load().unwrap().config.accounts.remove(0);
        assert_eq!((account.app_token.expose(), account.app_key.expose()), (token, token));
        let text = minimal("").replace("{ file = \"DIR/token\" }", &format!("\"{token}\""));
        assert_eq!(Case::new(&text).load().unwrap().config.accounts[0].app_token.expose(), token);
    }
}

#[test]
fn a_credential_is_read_from_the_folder_that_systemd_names() {
    let text = minimal("").replace("{ file = \"DIR/token\" }", "{ credential = \"app-token\" }");
    let mut case = Case::new(&text);
    fs::create_dir(case.path("credentials")).unwrap();
    case.secret("credentials/app-token", b"fromsystemd\n");
    let directory = case.path("credentials");
    case.set("CREDENTIALS_DIRECTORY", directory.to_str().unwrap());
    let account = case.load().unwrap().config.accounts.remove(0);
    assert_eq!(account.app_token.expose(), "fromsystemd");
    assert_eq!(account.app_token_source, SecretSource::Credential("app-token".into()));
}

#[test]
fn a_secret_source_of_the_environment_replaces_the_one_in_the_file() {
    let mut case = Case::new(&minimal(""));
    case.set("ORDER_FEED_AGENT__ACCOUNTS__MY_STORE__APP_TOKEN__ENV", "TOKEN");
    case.set("TOKEN", "fromenv");
    let account = case.load().unwrap().config.accounts.remove(0);
    assert_eq!(account.app_token.expose(), "fromenv");
    assert_eq!(account.app_token_source, SecretSource::Env("TOKEN".into()));
}

#[test]
fn a_secret_is_not_shown_by_debug() {
    let config = Case::new(&minimal("")).load().unwrap().config;
    let shown = format!("{config:#?}");
    assert!(!shown.contains(super::CANARY) && !shown.contains(super::KEY), "{shown}");
    assert!(shown.contains("app_token: ***"), "{shown}");
}

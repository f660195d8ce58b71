//! Paths and permissions.

use std::path::PathBuf;

use super::text::Word;
use crate::config::Rotation;

/// A path that is not empty.
#[derive(Debug, Clone)]
pub(in crate::config) struct FilePath(pub(in crate::config) PathBuf);

impl Word for FilePath {
    fn allowed() -> String {
        "the path of a file, as text".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let names_a_file = !text.is_empty() && !text.contains('\0') && !text.ends_with('/');
        names_a_file.then(|| Self(PathBuf::from(text)))
    }
}

#[derive(Debug, Clone)]
pub(in crate::config) struct DirectoryPath(pub(in crate::config) PathBuf);

impl Word for DirectoryPath {
    fn allowed() -> String {
        "the path of a folder, as text".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains('\0')).then(|| Self(PathBuf::from(text)))
    }
}

/// The absolute path of a file.
#[derive(Debug, Clone)]
pub(in crate::config) struct ProgramPath(pub(in crate::config) PathBuf);

impl Word for ProgramPath {
    const PATTERN: Option<&str> = Some("^/.*[^/]$");

    fn allowed() -> String {
        "the absolute path of a program, as text".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        FilePath::read(text).filter(|path| path.0.is_absolute()).map(|path| Self(path.0))
    }
}

#[derive(Debug, Clone)]
pub(in crate::config) struct AbsoluteDirectory(pub(in crate::config) PathBuf);

impl Word for AbsoluteDirectory {
    const PATTERN: Option<&str> = Some("^/");

    fn allowed() -> String {
        "the absolute path of a folder, as text".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        DirectoryPath::read(text).filter(|path| path.0.is_absolute()).map(|path| Self(path.0))
    }
}

/// Permission bits with which the owner can at least write.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Mode(pub(in crate::config) u32);

impl Word for Mode {
    const PATTERN: Option<&str> = Some("^0?6[0246][0246]$");

    fn allowed() -> String {
        "the permissions of a file as octal text, such as \"0640\"; the owner reads and writes, nobody executes".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal)?;
        (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(Self(mode))
    }
}

/// When a file is put aside for its age.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Rotate(pub(in crate::config) Option<Rotation>);

impl Word for Rotate {
    const PATTERN: Option<&str> = Some("^(never|hourly|daily)$");

    fn allowed() -> String {
        "`never`, `hourly` or `daily`".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "never" => Some(Self(None)),
            every => Rotation::read(every).map(|every| Self(Some(every))),
        }
    }
}

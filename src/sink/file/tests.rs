//! The file sink against everything that can happen to a file.

use super::*;

const MODE: u32 = 0o640;

fn envelopes(range: std::ops::Range<u32>) -> Vec<Envelope> {
    range
        .map(|n| Envelope {
            order_id: n.to_string(),
            id: format!("id-{n}"),
            line: format!("{{\"id\":\"id-{n}\",\"state\":\"handling\"}}"),
            ..Envelope::default()
        })
        .collect()
}

/// A file, the mark that the journal holds, and the sink.
struct Rig {
    _directory: tempfile::TempDir,
    path: PathBuf,
    target: Target,
    mark: Option<Mark>,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders.jsonl");
        let target = Target::new(&config::FileSink { path: path.clone(), mode: MODE, rotation: None });
        Self { _directory: directory, path, target, mark: None }
    }

    fn attempt(&self, envelopes: &[Envelope]) -> Result<Delivered, SinkError> {
        self.target.deliver(envelopes, self.mark, Timestamp::UNIX_EPOCH)
    }

    /// What the delivery worker does: anchors are recorded, then it is tried again.
    fn deliver(&mut self, envelopes: &[Envelope]) {
        loop {
            match self.attempt(envelopes).unwrap() {
                Delivered::Anchored(mark) => self.mark = Some(mark),
                Delivered::Part { .. } => panic!("there is no limit"),
                Delivered::All(mark) => {
                    self.mark = Some(mark);
                    return;
                }
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.path).unwrap().lines().map(str::to_owned).collect()
    }
}

fn lines(envelopes: &[Envelope]) -> Vec<String> {
    envelopes.iter().map(|envelope| envelope.line.clone()).collect()
}

#[test]
fn the_file_is_made_with_its_mode_and_grows() {
    let mut rig = Rig::new();
    rig.deliver(&envelopes(0..3));
    rig.deliver(&envelopes(3..5));
    assert_eq!(rig.lines(), lines(&envelopes(0..5)));
    assert_eq!(fs::metadata(&rig.path).unwrap().mode() & 0o777, MODE);
}

#[test]
fn nothing_is_written_before_the_place_is_recorded() {
    let rig = Rig::new();
    assert!(matches!(rig.attempt(&envelopes(0..3)), Ok(Delivered::Anchored(Mark { length: 0, .. }))));
    assert_eq!(fs::read(&rig.path).unwrap(), b"");
}

#[test]
fn after_a_crash_at_any_byte_every_line_is_there_once() {
    let all = envelopes(0..4);
    let whole = lines(&all).join("\n") + "\n";
    for n_bytes in 0..=whole.len() {
        let mut rig = Rig::new();
        rig.deliver(&envelopes(9..10));
        let mut file = OpenOptions::new().append(true).open(&rig.path).unwrap();
        file.write_all(&whole.as_bytes()[..n_bytes]).unwrap();

        rig.deliver(&all);
        let mut expected = lines(&envelopes(9..10));
        expected.extend(lines(&all));
        assert_eq!(rig.lines(), expected, "crash after {n_bytes} bytes");
    }
}

#[test]
fn a_line_that_lacks_only_its_newline_is_not_written_again_though_it_would_say_more_now() {
    let mut rig = Rig::new();
    rig.deliver(&envelopes(0..1));
    let mut file = OpenOptions::new().append(true).open(&rig.path).unwrap();
    write!(file, "{}", envelopes(1..2)[0].line).unwrap();
    let mut rest = envelopes(1..3);
    // As when a newer change of the order came meanwhile.
    rest[0].line = rest[0].line.replacen('{', "{\"superseded\":true,", 1);
    rig.deliver(&rest);
    assert_eq!(rig.lines(), lines(&envelopes(0..3)));
}

#[test]
fn a_foreign_line_without_an_end_gets_a_newline() {
    for foreign in ["hand-written", "{", "{\"id\":\"id-0\"", "{\"id\":\"id-0\",\"state\":\"other"] {
        let mut rig = Rig::new();
        fs::write(&rig.path, foreign).unwrap();
        rig.deliver(&envelopes(0..1));
        assert_eq!(rig.lines(), [foreign, &envelopes(0..1)[0].line]);

        let mut file = OpenOptions::new().append(true).open(&rig.path).unwrap();
        file.write_all(b"between").unwrap();
        rig.deliver(&envelopes(1..2));
        assert_eq!(rig.lines()[2..], ["between", &envelopes(1..2)[0].line]);
    }
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let mut rig = Rig::new();
    rig.deliver(&envelopes(0..2));
    fs::rename(&rig.path, rig.path.with_extension("1")).unwrap();
    rig.deliver(&envelopes(2..4));
    assert_eq!(rig.lines(), lines(&envelopes(2..4)));
}

#[test]
fn a_link_whose_target_was_moved_away_gets_a_new_one() {
    let mut rig = Rig::new();
    let target = rig.path.with_extension("target");
    std::os::unix::fs::symlink(&target, &rig.path).unwrap();
    rig.deliver(&envelopes(0..2));
    fs::rename(&target, target.with_extension("1")).unwrap();
    rig.deliver(&envelopes(2..4));
    assert_eq!(rig.lines(), lines(&envelopes(2..4)));
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, MODE);
}

#[test]
fn a_file_that_others_cut_is_continued() {
    let mut rig = Rig::new();
    rig.deliver(&envelopes(0..2));
    File::create(&rig.path).unwrap();
    rig.deliver(&envelopes(2..4));
    assert_eq!(rig.lines(), lines(&envelopes(2..4)));
}

#[test]
fn after_a_failed_fsync_what_the_file_shows_is_not_believed() {
    let mut rig = Rig::new();
    rig.deliver(&envelopes(0..1));
    let mut file = OpenOptions::new().append(true).open(&rig.path).unwrap();
    writeln!(file, "{}", envelopes(1..2)[0].line).unwrap();
    rig.target.sync_failed.store(true, Ordering::Relaxed);
    rig.deliver(&envelopes(1..2));
    assert_eq!(rig.lines(), [lines(&envelopes(0..2)), lines(&envelopes(1..2))].concat());
}

#[test]
fn what_is_not_a_regular_file_is_refused() {
    let rig = Rig::new();
    fs::create_dir(&rig.path).unwrap();
    assert!(matches!(rig.attempt(&envelopes(0..1)), Err(SinkError::NotAFile { .. })));
}

mod rotating;
mod working;

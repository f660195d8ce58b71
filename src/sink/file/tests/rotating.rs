//! Files that the sink itself puts aside.

use std::os::unix::fs::symlink;

use super::super::rotation as job;
use super::*;
use crate::policy::rotation::{Rotation, Settings};

const HOURLY: Settings = Settings { every: Some(Rotation::Hourly), max_bytes: None, max_files: None };
const DAILY: Settings = Settings { every: Some(Rotation::Daily), ..HOURLY };

/// Three lines of [`envelopes`] with one digit.
const THREE_LINES: u64 = 3 * 33;
const BY_SIZE: Settings = Settings { every: None, max_bytes: Some(THREE_LINES), max_files: None };

/// A directory, the mark that the journal holds, and the sink; files carry the time of the rig.
struct Rig {
    directory: tempfile::TempDir,
    path: PathBuf,
    target: Target,
    mark: Option<Mark>,
}

impl Rig {
    fn new(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders.jsonl");
        Self { target: target(&path, settings), directory, path, mark: None }
    }

    /// A process that knows what the journal says and nothing else.
    fn restart(&mut self, settings: Settings) {
        self.target = target(&self.path, settings);
    }

    /// What the delivery worker does.
    fn deliver(&mut self, mut rest: &[Envelope], now: &str) {
        let now = at(now);
        while !rest.is_empty() {
            let (n_events, mark) = match self.target.deliver(rest, self.mark, now).unwrap() {
                Delivered::Anchored(mark) => (0, mark),
                Delivered::Part { n_events, mark } => (n_events, mark),
                Delivered::All(mark) => (rest.len(), mark),
            };
            self.mark = Some(mark);
            rest = &rest[n_events..];
            self.written_at(now);
        }
    }

    fn written_at(&self, now: Timestamp) {
        let file = OpenOptions::new().append(true).open(&self.path).unwrap();
        file.set_modified(now.try_into().unwrap()).unwrap();
    }

    /// The files that begin like ours, oldest first, the current one last, without what their names have in common.
    fn files(&self) -> Vec<(String, Vec<String>)> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.directory.path()).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_file() && name.starts_with("orders") {
                let text = fs::read_to_string(entry.path()).unwrap();
                let short = name.trim_start_matches("orders").trim_end_matches(".jsonl").to_owned();
                files.push((short, text.lines().map(str::to_owned).collect()));
            }
        }
        files.sort_by_key(|(name, _)| (name.is_empty(), name.clone()));
        files
    }

    fn names(&self) -> Vec<String> {
        self.files().into_iter().map(|(name, _)| name).collect()
    }

    fn all_lines(&self) -> Vec<String> {
        self.files().into_iter().flat_map(|(_, lines)| lines).collect()
    }
}

fn target(path: &Path, settings: Settings) -> Target {
    Target::new(&config::FileSink { path: path.to_owned(), mode: MODE, rotation: Some(settings) })
}

fn at(time: &str) -> Timestamp {
    let full = if time.contains('T') { format!("{time}Z") } else { format!("2026-11-30T{time}Z") };
    full.parse().unwrap()
}

fn file(name: &str, range: std::ops::Range<u32>) -> (String, Vec<String>) {
    (name.to_owned(), lines(&envelopes(range)))
}

#[test]
fn an_hour_begins_a_new_file_with_the_mode_when_its_first_event_comes() {
    let mut rig = Rig::new(HOURLY);
    rig.deliver(&envelopes(0..1), "15:10:00");
    rig.deliver(&envelopes(1..2), "15:59:59.999");
    rig.deliver(&envelopes(2..3), "16:00:00");
    rig.restart(HOURLY);
    rig.deliver(&envelopes(3..4), "16:30:00");
    rig.deliver(&envelopes(4..5), "2026-12-01T16:10:00");
    let expected =
        [file("-2026-11-30T15-59-59.999Z", 0..2), file("-2026-11-30T16-30-00.000Z", 2..4), file("", 4..5)];
    assert_eq!(rig.files(), expected);
    assert_eq!(fs::metadata(&rig.path).unwrap().mode() & 0o777, MODE);
}

#[test]
fn a_day_begins_a_new_file_and_an_hour_does_not() {
    let mut rig = Rig::new(DAILY);
    rig.deliver(&envelopes(0..1), "00:00:00");
    rig.deliver(&envelopes(1..2), "23:59:59");
    rig.deliver(&envelopes(2..3), "2026-12-01T00:00:00");
    assert_eq!(rig.files(), [file("-2026-11-30T23-59-59.000Z", 0..2), file("", 2..3)]);
}

#[test]
fn no_file_grows_beyond_its_size_however_much_comes_at_once() {
    let mut rig = Rig::new(BY_SIZE);
    rig.deliver(&envelopes(0..2), "15:10:00");
    rig.deliver(&envelopes(2..10), "15:10:00");
    rig.deliver(&envelopes(3..4), "15:10:00");
    let expected = [
        file("-2026-11-30T15-10-00.000Z", 0..3),
        file("-2026-11-30T15-10-00.001Z", 3..6),
        file("-2026-11-30T15-10-00.002Z", 6..9),
    ];
    let files = rig.files();
    assert_eq!(files[..3], expected);
    assert_eq!(files[3].1, [lines(&envelopes(9..10)), lines(&envelopes(3..4))].concat());
    assert_eq!(lines(&envelopes(0..3)).join("\n").len() as u64 + 1, THREE_LINES);
}

#[test]
fn a_line_longer_than_a_file_may_be_has_one_for_itself() {
    let mut rig = Rig::new(Settings { max_bytes: Some(10), ..DAILY });
    rig.deliver(&envelopes(0..3), "15:10:00");
    assert_eq!(rig.files().iter().map(|(_, lines)| lines.len()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(rig.all_lines(), lines(&envelopes(0..3)));
}

#[test]
fn size_and_day_go_together() {
    let mut rig = Rig::new(Settings { max_bytes: Some(THREE_LINES), ..DAILY });
    rig.deliver(&envelopes(0..4), "15:10:00");
    rig.deliver(&envelopes(4..5), "2026-12-01T01:00:00");
    assert_eq!(rig.files().iter().map(|(_, lines)| lines.len()).collect::<Vec<_>>(), [3, 1, 1]);
}

#[test]
fn a_clock_that_was_set_back_neither_rotates_again_and_again_nor_mixes_up_the_order() {
    let mut rig = Rig::new(Settings { max_files: Some(2), ..HOURLY });
    rig.deliver(&envelopes(0..1), "16:10:00");
    rig.deliver(&envelopes(1..2), "17:10:00");
    for n in 2..5 {
        rig.deliver(&envelopes(n..n + 1), "13:10:00");
    }
    assert_eq!(rig.files(), [file("-2026-11-30T16-10-00.000Z", 0..1), file("", 1..5)]);
    for (n, now) in [(5, "14:10:00"), (6, "15:10:00")] {
        rig.deliver(&envelopes(n..n + 1), now);
    }
    // The oldest went, whatever the clock said meanwhile.
    let expected =
        [file("-2026-11-30T16-10-00.001Z", 1..5), file("-2026-11-30T16-10-00.002Z", 5..6), file("", 6..7)];
    assert_eq!(rig.files(), expected);
}

#[test]
fn the_newest_files_are_kept_and_what_is_not_ours_stays() {
    let mut rig = Rig::new(Settings { max_files: Some(2), ..BY_SIZE });
    let beside = |name: &str| rig.directory.path().join(name);
    let foreign = ["orders-old.jsonl", "orders-2026-11-29T00-00-00.000Z.jsonl.gz", "border.jsonl"];
    for name in foreign {
        fs::write(beside(name), "x").unwrap();
    }
    symlink("border.jsonl", beside("orders-2026-11-28T00-00-00.000Z.jsonl")).unwrap();
    fs::create_dir(beside("orders-2026-11-27T00-00-00.000Z.jsonl")).unwrap();
    let foreign = foreign.map(&beside);
    let odd = ["28", "27"].map(|day| beside(&format!("orders-2026-11-{day}T00-00-00.000Z.jsonl")));

    rig.deliver(&envelopes(0..10), "15:10:00");
    rig.deliver(&envelopes(0..3), "15:10:00");
    assert!(foreign.iter().chain(&odd).all(|path| path.symlink_metadata().is_ok()));
    let ours: Vec<_> =
        rig.files().into_iter().filter(|(name, _)| name.len() != 4 && !name.ends_with("gz")).collect();
    let kept: Vec<_> = ours.iter().map(|(_, lines)| lines[0].clone()).collect();
    let first_lines = [6, 9, 2].map(|n| lines(&envelopes(n..n + 1))[0].clone());
    assert_eq!(ours.len(), 3, "{ours:?}");
    assert_eq!(kept, first_lines, "{ours:?}");
}

/// A machine that stops at each step of a rotation and of the delivery behind it, and a process that starts there.
#[test]
fn after_a_crash_at_any_step_every_line_is_there_once_and_too_old_files_are_gone() {
    type Do = Box<dyn Fn(&mut Rig)>;
    let kept = Settings { max_files: Some(2), ..HOURLY };
    let coming = envelopes(8..10);
    let text = lines(&coming).join("\n") + "\n";
    let append = |text: &str| {
        let text = text.to_owned();
        move |rig: &mut Rig| {
            OpenOptions::new().append(true).open(&rig.path).unwrap().write_all(text.as_bytes()).unwrap()
        }
    };
    let remove_oldest = |rig: &mut Rig| {
        let oldest = rig.names().remove(0);
        fs::remove_file(rig.directory.path().join(format!("orders{oldest}.jsonl"))).unwrap();
    };
    let mut steps: Vec<(String, Do)> = vec![
        ("nothing".to_owned(), Box::new(|_| {})),
        (
            "the rename".to_owned(),
            Box::new(|rig| {
                let file = File::open(&rig.path).unwrap();
                assert!(job::Rotation::new(HOURLY).rotate(&rig.path, &file));
            }),
        ),
        ("the making".to_owned(), Box::new(|rig| drop(rig.target.open().unwrap()))),
        (
            "the anchoring".to_owned(),
            Box::new(|rig| {
                let anchored = rig.target.anchor(&File::open(&rig.path).unwrap()).unwrap();
                let Delivered::Anchored(mark) = anchored else { panic!("{anchored:?}") };
                rig.mark = Some(mark);
            }),
        ),
        ("one removal".to_owned(), Box::new(remove_oldest)),
        ("two removals".to_owned(), Box::new(remove_oldest)),
    ];
    for (n, _) in text.char_indices() {
        steps.push((format!("{} bytes", n + 1), Box::new(append(&text[n..=n]))));
    }
    for n_done in 1..=steps.len() {
        let mut rig = Rig::new(HOURLY);
        for (n, hour) in [(0, 11), (2, 12), (4, 13), (6, 14)] {
            rig.deliver(&envelopes(n..n + 2), &format!("{hour}:10:00"));
        }
        assert_eq!(rig.names().len(), 4);
        for (_, step) in &steps[..n_done] {
            step(&mut rig);
        }
        let before = &steps[n_done - 1].0;
        rig.restart(kept);
        rig.deliver(&coming, "15:20:00");
        let expected = [
            file("-2026-11-30T13-10-00.000Z", 4..6),
            file("-2026-11-30T14-10-00.000Z", 6..8),
            file("", 8..10),
        ];
        assert_eq!(rig.files(), expected, "crash after {before}");
        // And the restart after it finds nothing to do again.
        rig.restart(kept);
        rig.deliver(&envelopes(0..1), "15:30:00");
        assert_eq!(
            rig.files()[2].1,
            [lines(&coming), lines(&envelopes(0..1))].concat(),
            "crash after {before}"
        );
    }
}

#[test]
fn what_a_crash_left_unrecorded_is_recognised_before_its_file_is_put_aside() {
    let coming = envelopes(2..4);
    let text = lines(&coming).join("\n") + "\n";
    for settings in [HOURLY, Settings { max_bytes: Some(1), ..HOURLY }, BY_SIZE] {
        for n_bytes in 0..=text.len() {
            let mut rig = Rig::new(settings);
            rig.deliver(&envelopes(0..2), "15:10:00");
            let mut file = OpenOptions::new().append(true).open(&rig.path).unwrap();
            file.write_all(&text.as_bytes()[..n_bytes]).unwrap();
            file.set_modified(at("15:20:00").try_into().unwrap()).unwrap();
            rig.restart(settings);
            rig.deliver(&coming, "16:10:00");
            rig.deliver(&envelopes(4..5), "17:10:00");
            assert_eq!(rig.all_lines(), lines(&envelopes(0..5)), "{settings:?}, crash after {n_bytes} bytes");
        }
    }
}

#[test]
fn a_rotation_that_fails_costs_no_event_and_is_tried_again() {
    let mut rig = Rig::new(HOURLY);
    rig.deliver(&envelopes(0..1), "15:10:00");
    // No later name is left.
    let last = rig.directory.path().join("orders-9999-12-30T22-00-00.999Z.jsonl");
    fs::create_dir(&last).unwrap();
    rig.deliver(&envelopes(1..2), "16:10:00");
    rig.written_at(at("16:05:00"));
    rig.deliver(&envelopes(2..3), "17:10:00");
    assert_eq!(rig.files(), [file("", 0..3)]);
    fs::remove_dir(&last).unwrap();
    rig.deliver(&envelopes(3..4), "18:10:00");
    assert_eq!(rig.files(), [file("-2026-11-30T17-10-00.000Z", 0..3), file("", 3..4)]);
}

#[test]
fn a_rename_that_fails_does_not_slow_the_sink_down_to_one_event_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    // No name of a file may be as long as this and a moment.
    let path = directory.path().join("x".repeat(250));
    let target = target(&path, BY_SIZE);
    let Ok(Delivered::Anchored(mark)) = target.deliver(&envelopes(0..3), None, at("15:10:00")) else {
        panic!()
    };
    let Ok(Delivered::All(mark)) = target.deliver(&envelopes(0..3), Some(mark), at("15:10:00")) else {
        panic!()
    };
    assert!(matches!(target.deliver(&envelopes(3..9), Some(mark), at("15:10:00")), Ok(Delivered::All(_))));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 9);
}

#[test]
fn tidying_that_failed_is_tried_again() {
    let mut rig = Rig::new(HOURLY);
    for (n, hour) in [(0, 11), (1, 12), (2, 13)] {
        rig.deliver(&envelopes(n..n + 1), &format!("{hour}:10:00"));
    }
    let rotation = job::Rotation::new(Settings { max_files: Some(1), ..HOURLY });
    // The directory cannot be found.
    rotation.tidy(&rig.directory.path().join("elsewhere/orders.jsonl"));
    assert_eq!(rig.names().len(), 3);
    rotation.tidy(&rig.path);
    assert_eq!(rig.files(), [file("-2026-11-30T12-10-00.000Z", 1..2), file("", 2..3)]);
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_put_aside_where_it_is() {
    let mut rig = Rig::new(HOURLY);
    let elsewhere = rig.directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink("elsewhere/target.jsonl", &rig.path).unwrap();
    rig.deliver(&envelopes(0..2), "15:10:00");
    rig.deliver(&envelopes(2..4), "16:10:00");
    assert!(rig.path.symlink_metadata().unwrap().is_symlink());
    let text = |name: &str| fs::read_to_string(elsewhere.join(name)).unwrap();
    assert_eq!(text("target-2026-11-30T15-10-00.000Z.jsonl"), lines(&envelopes(0..2)).join("\n") + "\n");
    assert_eq!(text("target.jsonl"), lines(&envelopes(2..4)).join("\n") + "\n");
}

#[test]
fn logrotate_and_other_writers_may_come_between() {
    let mut rig = Rig::new(HOURLY);
    rig.deliver(&envelopes(0..2), "15:10:00");
    fs::rename(&rig.path, rig.directory.path().join("moved")).unwrap();
    rig.deliver(&envelopes(2..4), "15:20:00");
    let mut foreign = OpenOptions::new().append(true).open(&rig.path).unwrap();
    foreign.write_all(b"foreign\n").unwrap();
    rig.written_at(at("15:30:00"));
    rig.deliver(&envelopes(4..5), "16:10:00");
    // A line without an end is ended before its file is put aside.
    let mut foreign = OpenOptions::new().append(true).open(&rig.path).unwrap();
    foreign.write_all(b"half").unwrap();
    rig.written_at(at("16:20:00"));
    rig.deliver(&envelopes(5..6), "17:10:00");
    rig.deliver(&envelopes(6..7), "18:10:00");
    let files = rig.files();
    assert_eq!(
        files[0],
        (
            "-2026-11-30T15-30-00.000Z".to_owned(),
            [lines(&envelopes(2..4)), vec!["foreign".to_owned()]].concat()
        )
    );
    assert_eq!(
        files[1].1,
        [lines(&envelopes(4..5)), vec!["half".to_owned()], lines(&envelopes(5..6))].concat()
    );
    assert_eq!(files[2], file("", 6..7));
    assert_eq!(fs::read_to_string(rig.directory.path().join("moved")).unwrap().lines().count(), 2);
}

#[test]
fn an_empty_file_is_not_put_aside() {
    let mut rig = Rig::new(HOURLY);
    fs::write(&rig.path, "").unwrap();
    rig.written_at(at("12:10:00"));
    rig.deliver(&envelopes(0..1), "15:10:00");
    assert_eq!(rig.names(), [""]);
}

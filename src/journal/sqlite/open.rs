//! Opening: the lock, the file, its owner, its settings.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::journal::JournalError;
use crate::journal::schema::{self, Owner};

/// A damaged file is found at the start as long as looking at all of it costs next to nothing.
const CHECKED_WHOLE_UP_TO: u64 = 64 * 1024 * 1024;

/// How long a statement waits for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes the lock file beside the journal and writes our process id into it.
pub(super) fn lock(path: &Path) -> Result<File, JournalError> {
    let lock_path = beside(path, ".lock");
    let io = |source| JournalError::Open { path: lock_path.clone(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // A holder that is just starting has not written its id yet.
            if file.take(20).read_to_string(&mut holder).is_err() || holder.trim().is_empty() {
                "unknown".clone_into(&mut holder);
            }
            return Err(JournalError::Locked { path: path.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}

/// A companion of the journal.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether there is nothing in the file, or no file.
pub(super) fn is_empty(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |file| file.len() == 0)
}

/// Makes an empty file that only its owner may read, where there is none; SQLite gives its companions the same
/// mode. It is closed again before SQLite opens it: closing it later would drop SQLite's locks.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            file.sync_all()?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn connect(path: &Path) -> Result<Connection, JournalError> {
    let sqlite = |doing| move |source| JournalError::Sqlite { path: path.to_owned(), doing, source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite("cannot be opened"))?;
    let version = inspect(path, &connection).map_err(sqlite("is not a readable journal"))??;
    configure(&connection).map_err(sqlite("cannot be set up"))?;
    schema::migrate(&mut connection, version).map_err(sqlite("cannot be brought up to date"))?;
    Ok(connection)
}

/// Opens the journal beside an agent: one that is there and that this version wrote, without making, migrating or
/// locking it.
///
/// # Errors
/// Such a journal is not there, or out of reach. Nothing has changed then.
pub(in crate::journal) fn visit(path: &Path) -> Result<Connection, JournalError> {
    let sqlite = |doing| move |source| JournalError::Sqlite { path: path.to_owned(), doing, source };
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => {
            return Err(JournalError::Unusable { path: path.to_owned(), what: "is a directory, not a file" });
        }
        Ok(file) if 0 < file.len() => {}
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(JournalError::Open { path: path.to_owned(), source });
        }
        Ok(_) | Err(_) => return Err(JournalError::Missing { path: path.to_owned() }),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite("cannot be opened"))?;
    connection.busy_timeout(PATIENCE).map_err(sqlite("cannot be set up"))?;
    let version = version(path, &connection).map_err(sqlite("is not a readable journal"))??;
    if version < schema::VERSION {
        return Err(JournalError::Older { path: path.to_owned(), found: version, needed: schema::VERSION });
    }
    // Nothing that writes: a person looks into the journal most of all when its disk is full.
    reclaim(&connection)
        .and_then(|()| keep_plans(&connection))
        .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
        .and_then(|()| connection.pragma_update(None, "foreign_keys", true))
        .map_err(sqlite("cannot be set up"))?;
    Ok(connection)
}

/// Looks at the file without changing it and returns its version, 0 for an empty one.
fn inspect(path: &Path, connection: &Connection) -> rusqlite::Result<Result<i64, JournalError>> {
    let version = match version(path, connection)? {
        Ok(version) => version,
        refused @ Err(_) => return Ok(refused),
    };
    if fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_WHOLE_UP_TO) {
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Ok(Err(JournalError::Unusable { path: path.to_owned(), what: "is damaged" }));
        }
    }
    reclaim(connection)?;
    Ok(Ok(version))
}

/// Leaves the connection so that closing it changes nothing: see [`reclaim`].
fn version(path: &Path, connection: &Connection) -> rusqlite::Result<Result<i64, JournalError>> {
    // Closing the only connection would move the write-ahead log into a file that is not ours to touch.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let path = || path.to_owned();
    Ok(match schema::owner(connection)? {
        Owner::Nobody => Ok(0),
        Owner::Ours { version } => Ok(version),
        Owner::Newer { version } => {
            Err(JournalError::Newer { path: path(), found: version, known: schema::VERSION })
        }
        Owner::Foreign => Err(JournalError::Foreign { path: path() }),
    })
}

/// The file is ours: its write-ahead log may be moved into it.
fn reclaim(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

/// A statement is planned once, not anew for each value that is bound to it.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    keep_plans(connection)?;
    // Without effect once there is a table; before that it lets pruning give space back.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // NORMAL would lose the last acknowledged batches at a power cut: the feed has forgotten them by then.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    connection.pragma_update(None, "foreign_keys", true)
}

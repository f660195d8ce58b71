//! The tables, and the steps from one version of them to the next.

use rusqlite::{Connection, TransactionBehavior};

/// "OFA!", so that a database of another program is recognised and left alone.
pub(super) const APPLICATION_ID: i64 = 0x4f46_4121;

/// `STEPS[n]` leads from version n to n + 1. A step that was released is never changed.
const STEPS: &[&str] = &[FIRST, PAUSES, DELIVERIES];

/// The version that this binary reads and writes.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// - `events`: AUTOINCREMENT, so that a place is not used again once its event is pruned.
/// - `keys`: what deduplicates. It outlives the events, and starts with the hour so that inserts stay local.
/// - `quarantine`: items that no event can be made of.
/// - `sinks`: progress, with the file and its length where the sink is a file.
/// - `probe`: the one row that a probe writes, larger than an ordinary batch.
const FIRST: &str = "
    CREATE TABLE sources (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id BLOB NOT NULL,
        account TEXT NOT NULL,
        source INTEGER NOT NULL REFERENCES sources (id),
        order_id TEXT NOT NULL,
        state TEXT NOT NULL,
        current_change_ns INTEGER,
        received_at_ms INTEGER NOT NULL,
        item TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_order ON events (account, order_id, seq);
    CREATE TABLE keys (
        hour INTEGER NOT NULL,
        hash BLOB NOT NULL,
        seen_at_ms INTEGER NOT NULL,
        PRIMARY KEY (hour, hash)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE quarantine (
        hash BLOB PRIMARY KEY NOT NULL,
        account TEXT NOT NULL,
        reason TEXT NOT NULL,
        item TEXT NOT NULL,
        times INTEGER NOT NULL,
        first_at_ms INTEGER NOT NULL,
        last_at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE sinks (
        name TEXT PRIMARY KEY NOT NULL,
        seq INTEGER NOT NULL,
        inode INTEGER,
        length INTEGER
    ) STRICT;
    CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), filler BLOB NOT NULL) STRICT;
";

/// The silence that VTEX asked of an account, so that a restart does not break it.
const PAUSES: &str = "
    CREATE TABLE pauses (
        vtex_account TEXT PRIMARY KEY NOT NULL,
        ends_at_ms INTEGER NOT NULL,
        length_ms INTEGER NOT NULL
    ) STRICT;
";

/// - `deliveries`: what a sink's progress alone does not say of an event. A row of an event behind the progress is
///   `pending`, `dead` or `discarded`; one ahead of it may be `delivered` too. No row behind it: delivered or not
///   wanted.
/// - `open_deliveries`, `dead_letters`: either may be few among many of the other.
/// - `deliveries.seq` refers to an event; said as a foreign key it would make each pruned event a scan.
/// - `wanted`: which events a sink wanted behind a place, as JSON.
/// - `sinks.first_seq`: the sink was added behind this place.
/// - `sinks.missing_since_ms`: when the sink was taken out of the configuration.
/// - `events_by_hour`: finds an event by its id or its time; the hour first, so that inserts stay local.
const DELIVERIES: &str = "
    CREATE TABLE deliveries (
        sink TEXT NOT NULL,
        seq INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('delivered', 'pending', 'dead', 'discarded')),
        attempts INTEGER NOT NULL,
        failures INTEGER NOT NULL,
        failed_at_ms INTEGER,
        reason TEXT,
        answer TEXT,
        PRIMARY KEY (sink, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX open_deliveries ON deliveries (sink, seq) WHERE state IN ('pending', 'delivered');
    CREATE INDEX dead_letters ON deliveries (seq) WHERE state = 'dead';
    CREATE INDEX events_by_hour ON events (received_at_ms / 3600000, id);
    CREATE TABLE wanted (
        sink TEXT NOT NULL,
        seq INTEGER NOT NULL,
        what TEXT NOT NULL,
        PRIMARY KEY (sink, seq)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE sinks ADD COLUMN missing_since_ms INTEGER;
    ALTER TABLE sinks ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 0;
";

/// Whose database a file is, read without changing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nothing in it yet.
    Nobody,
    Ours {
        version: i64,
    },
    Newer {
        version: i64,
    },
    Foreign,
}

pub(super) fn owner(connection: &Connection) -> rusqlite::Result<Owner> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application_id = pragma("application_id")?;
    let version = pragma("user_version")?;
    let n_objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match application_id {
        0 if version == 0 && n_objects == 0 => Owner::Nobody,
        APPLICATION_ID if version <= VERSION => Owner::Ours { version },
        APPLICATION_ID => Owner::Newer { version },
        _ => Owner::Foreign,
    })
}

/// Brings the tables from `version` to [`VERSION`] in one transaction.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> rusqlite::Result<()> {
    migrate_to(connection, version, VERSION)
}

/// The same up to the version `to`.
pub(super) fn migrate_to(connection: &mut Connection, version: i64, to: i64) -> rusqlite::Result<()> {
    if version == to {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let [from, to_step] = [version, to].map(|version| usize::try_from(version).unwrap_or_default());
    for step in STEPS.iter().take(to_step).skip(from) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", to)?;
    transaction.commit()
}

//! Namespaces, their charters, and how they are opened.

/// Makes a namespace with a charter, if it is new. Looks first: a conflict
/// uses a number up too, and there are two billion.
pub(in crate::postgres) const NAME: &str = "
    INSERT INTO @.tickwheel_namespaces (name, codec, no_overlap, at_most_once, parts, made, edition)
    SELECT $1::text, $2::text, $3::bool, $4::bool, $5::int, nextval('@.tickwheel_versions'),
        nextval('@.tickwheel_versions')
    WHERE NOT EXISTS (SELECT FROM @.tickwheel_namespaces n WHERE n.name = $1)
    ON CONFLICT (name) DO NOTHING";

/// The charter of a namespace.
macro_rules! charter {
    () => {
        "n.codec, n.no_overlap, n.at_most_once, n.parts"
    };
}

/// The charter of a namespace, its edition, and its first edition.
pub(in crate::postgres) const CHARTER: &str = concat!(
    "SELECT ",
    charter!(),
    ", n.edition, n.made FROM @.tickwheel_namespaces n WHERE n.name = $1::text"
);

/// Gives the namespace another charter and another edition, if it has the same codec and parts.
/// Returns the charter as it was.
pub(in crate::postgres) const AMEND: &str = concat!(
    "WITH held AS MATERIALIZED (
        SELECT n.* FROM @.tickwheel_namespaces n WHERE n.id = $1::int FOR UPDATE
    ), amended AS (
        UPDATE @.tickwheel_namespaces n SET no_overlap = $3::bool, at_most_once = $4::bool,
            edition = nextval('@.tickwheel_versions')
        FROM held
        WHERE n.id = held.id AND (held.codec, held.parts) = ($2::text, $5::int)
            AND (held.no_overlap, held.at_most_once) <> ($3, $4)
    )
    SELECT ",
    charter!(),
    " FROM held n"
);

/// The namespaces, by name.
pub(in crate::postgres) const NAMESPACES: &str = concat!(
    "SELECT n.name, ",
    charter!(),
    " FROM @.tickwheel_namespaces n ORDER BY n.name COLLATE \"C\""
);

/// The id, the codec and the channel of a namespace. A dump or a logical replica of the tables has
/// the same channels.
pub(in crate::postgres) const FIND: &str = "
    SELECT id, codec, 'tickwheel_' || (SELECT replace(s.identity::text, '-', '') FROM @.tickwheel_schema s) || '_' || id
    FROM @.tickwheel_namespaces WHERE name = $1::text";

/// The time, and a number for an instance.
#[cfg(not(tickwheel_next_schema))]
pub(in crate::postgres) const OPEN: &str =
    concat!("SELECT ", now!(), ", nextval('@.tickwheel_versions')");

/// The next version notes it in a table that it has added.
#[cfg(tickwheel_next_schema)]
pub(in crate::postgres) const OPEN: &str = concat!(
    "INSERT INTO @.tickwheel_openings (instance) VALUES (nextval('@.tickwheel_versions')) RETURNING ",
    now!(),
    ", instance"
);

//! Namespaces, and how they are opened.

/// Makes a namespace, if it is new.
pub(in crate::postgres) const NAME: &str = "INSERT INTO @.tickwheel_namespaces (name, codec) VALUES ($1::text, $2::text) ON CONFLICT (name) DO NOTHING";

/// The id, the codec and the channel of a namespace.
pub(in crate::postgres) const FIND: &str = "
    SELECT id, codec, 'tickwheel_' || '@.tickwheel_timers'::regclass::oid || '_' || id
    FROM @.tickwheel_namespaces WHERE name = $1::text";

/// The time, and a number for an instance.
pub(in crate::postgres) const OPEN: &str =
    concat!("SELECT ", now!(), ", nextval('@.tickwheel_versions')");

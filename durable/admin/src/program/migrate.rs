//! The schema of a store: its version, and the steps between versions.

use std::time::SystemTime;

use serde_json::{Value, json};
use tickwheel_durable::store::{Namespace, StoreError, StoreTime};
use tickwheel_durable::{Migration, Postgres, Redis, SchemaVersion, Sqlite};
use tokio::time::timeout;

use super::args::{Common, Migrate, Print};
use super::output::{print, print_json, table};
use super::target::{self, Target};
use crate::failure::Failure;
use crate::operator::{StoreAccess, write_stderr};
use crate::shown::text_line;

/// The latest version that this program knows. Without files there is the first one.
pub(super) fn latest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(1, |step| step.version)
}

/// A schema, and its version.
struct Schema {
    /// In Redis each namespace has its own.
    namespace: Option<Namespace>,
    version: SchemaVersion,
}

impl Schema {
    fn name(&self) -> &str {
        let namespace = self.namespace.as_ref();
        namespace.map_or("all timers", Namespace::as_str)
    }
}

/// The log has so much of the name of a user.
const WHO: usize = 60;

pub(super) async fn migrate(common: &Common, what: Migrate) -> Result<(), Failure> {
    let url = target::url(common)?;
    let target = target::target(&url)?;
    let (to, how, is_up) = match what {
        Migrate::Status => return show(common, target).await,
        Migrate::Up { to, print, .. } => (to.unwrap_or(target.latest()), print, true),
        Migrate::Down { to, print, yes } => {
            if !yes && !print.print {
                return Err(Failure::Usage(format!(
                    "nothing was changed: to take the schema back to version {to} loses what later versions have added, \
                     and needs --yes"
                )));
            }
            (to, print, false)
        }
    };
    target.check_is_known(to)?;
    if let Print {
        print: true,
        from: Some(from),
    } = how
    {
        target.check_is_known(from)?;
        return print_steps(target.migrations(), from, to, is_up);
    }
    let schemas = target.schemas(common).await?;
    for schema in &schemas {
        target.check_leads(&schema.version, to, is_up)?;
    }
    if how.print {
        let versions = schemas.iter().map(|schema| schema.version.version);
        // Those of Redis do nothing in a namespace that has taken them.
        let from = if is_up {
            versions.min()
        } else {
            versions.max()
        };
        return print_steps(target.migrations(), from.unwrap_or(to), to, is_up);
    }
    for schema in &schemas {
        let from = schema.version.version;
        if (is_up && from < to) || (!is_up && from > to) {
            target.take_steps(schema, to).await?;
            write_stderr(&format!(
                "change: time={} who={:?} schema={:?} action=migrate from={from} to={to}",
                StoreTime::from(SystemTime::now()),
                text_line(&super::change::who(), WHO),
                schema.name()
            ));
        }
    }
    show(common, target).await
}

impl Target<'_> {
    fn migrations(self) -> &'static [Migration] {
        match self {
            Target::Postgres(_) => Postgres::MIGRATIONS,
            Target::Redis(_) => Redis::MIGRATIONS,
            Target::Sqlite(_) => Sqlite::MIGRATIONS,
        }
    }

    fn latest(self) -> u32 {
        latest(self.migrations())
    }

    fn check_is_known(self, to: u32) -> Result<(), Failure> {
        let latest = self.latest();
        if to > latest {
            return Err(Failure::Usage(format!(
                "version {to} is of a later program: this one knows the schema up to version {latest}"
            )));
        }
        if to == 0 && matches!(self, Target::Redis(_)) {
            return Err(Failure::Usage(
                "the first version of a namespace in Redis is 1: `purge` deletes its timers"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Whether this program knows the steps from that version.
    fn check_leads(self, found: &SchemaVersion, to: u32, is_up: bool) -> Result<(), Failure> {
        let (latest, version) = (self.latest(), found.version);
        if is_up && found.readable_by > latest {
            return Err(StoreError::schema(version, found.readable_by, latest).into());
        }
        if !is_up && version > latest && to < version {
            return Err(Failure::Failed(format!(
                "the schema has version {version}, and this program knows the steps up to {latest}: take them back with \
                 the program of the version that has made it"
            )));
        }
        Ok(())
    }

    /// The schemas of the store, and their versions.
    async fn schemas(self, common: &Common) -> Result<Vec<Schema>, Failure> {
        let asked = async {
            let version = match self {
                Target::Redis(url) => return of_redis(url, common).await,
                Target::Postgres(url) => {
                    let version = Postgres::schema_version(target::postgres(url)?).await;
                    version.map_err(target::of_postgres)?
                }
                Target::Sqlite(path) => Sqlite::schema_version(target::file(path)?)?,
            };
            let namespace = None;
            Ok(vec![Schema { namespace, version }])
        };
        let limit = common.timeout;
        timeout(limit, asked)
            .await
            .map_err(|_| Failure::timeout(limit))?
    }

    /// A step that waits for others to let it through has limits of its own.
    async fn take_steps(self, schema: &Schema, to: u32) -> Result<(), Failure> {
        match self {
            Target::Postgres(url) => {
                let taken = Postgres::migrate(target::postgres(url)?, to).await;
                taken.map_err(target::of_postgres)?;
            }
            Target::Redis(url) => {
                if let Some(namespace) = &schema.namespace {
                    let redis = Redis::connect(url).await?;
                    redis.migrate(namespace.as_str(), to).await?;
                }
            }
            Target::Sqlite(path) => {
                Sqlite::migrate(target::file(path)?, to)?;
            }
        }
        Ok(())
    }
}

/// The namespaces of a Redis server, or the parts of the one that is named.
async fn of_redis(url: &str, common: &Common) -> Result<Vec<Schema>, Failure> {
    let redis = Redis::connect(url).await?;
    let access = StoreAccess::new(redis.clone().into(), common.timeout);
    let named = common.namespace.as_ref();
    let found = access.operators(named).await?;
    let parts = match (named, &found[..]) {
        (Some(name), []) => {
            return Err(Failure::NotFound(format!("there is no namespace {name}")));
        }
        (Some(_), [named, ..]) => named.all_parts(),
        (None, _) => found,
    };
    let mut schemas = Vec::new();
    for part in parts {
        let version = redis.schema_version(part.namespace.as_str()).await?;
        schemas.push(Schema {
            namespace: Some(part.namespace),
            version,
        });
    }
    Ok(schemas)
}

/// Shows the versions.
async fn show(common: &Common, target: Target<'_>) -> Result<(), Failure> {
    let (schemas, latest) = (target.schemas(common).await?, target.latest());
    if common.json {
        return print_json(&record(&schemas, latest));
    }
    let mut shown = table(&["schema", "version", "readable by", "this program"]);
    for schema in &schemas {
        let version = &schema.version;
        let figures = [version.version, version.readable_by, latest].map(|each| each.to_string());
        shown.add_row([schema.name().to_owned()].into_iter().chain(figures));
    }
    print(&shown.to_string())
}

fn record(schemas: &[Schema], latest: u32) -> Value {
    let record = |schema: &Schema| {
        json!({
            "namespace": schema.namespace.as_ref().map(Namespace::as_str),
            "version": schema.version.version,
            "readable_by": schema.version.readable_by,
        })
    };
    let schemas: Vec<_> = schemas.iter().map(record).collect();
    json!({ "schemas": schemas, "latest": latest })
}

fn print_steps(migrations: &[Migration], from: u32, to: u32, is_up: bool) -> Result<(), Failure> {
    let leads = if is_up { from < to } else { from > to };
    let steps = leads.then(|| Migration::steps(migrations, from, to));
    if let Some(steps) = steps.filter(|steps| !steps.is_empty()) {
        return print(steps.join("\n").trim_end());
    }
    write_stderr(&format!("there are no steps from version {from} to {to}"));
    Ok(())
}

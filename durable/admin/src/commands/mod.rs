//! The commands.

mod change;
mod list;
mod output;
mod stats;

pub(crate) use output::print;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::operator::Asked;
use crate::{serve, target};

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let Args {
        url,
        common,
        command,
    } = args;
    if let Command::Serve(options) = &command {
        // Before anything is asked: it needs no store.
        serve::check(options)?;
    }
    let store = target::connect(&url, common.timeout).await?;
    let asked = Asked::new(store, common.timeout);
    match command {
        Command::Stats => return stats::stats(&asked, &common).await,
        Command::Serve(options) => return serve::serve(asked, &common, options).await,
        Command::Watch { every, times } => {
            return stats::watch(&asked, &common, every, times).await;
        }
        _ => {}
    }
    let operator = asked.choose(common.namespace.as_ref()).await?;
    let json = common.json;
    match command {
        Command::List {
            state,
            keys,
            limit,
            after,
        } => list::list(&operator, json, state.into(), &keys, limit, after).await,
        Command::Show { key } => list::show(&operator, json, &key).await,
        Command::Instances => stats::instances(&operator, json).await,
        Command::Release { which } => change::release(&operator, json, which).await,
        Command::Retry { which } => change::retry(&operator, json, which).await,
        Command::Discard { which, in_flight } => {
            change::discard(&operator, json, which, in_flight).await
        }
        Command::Purge { yes } => change::purge(&operator, json, yes).await,
        Command::Stats | Command::Watch { .. } | Command::Serve(_) => Ok(()),
    }
}

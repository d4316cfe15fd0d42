//! The commands.

mod change;
mod list;
mod output;
mod stats;

use clap::CommandFactory as _;

pub(crate) use output::print;

use crate::actions::{Action, Selection};
use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::listing::Filter;
use crate::operator::Asked;
use crate::{serve, target};

/// Runs the command.
pub(crate) async fn run(Args { common, command }: Args) -> Result<(), Failure> {
    // Before anything is asked: these need no store.
    match &command {
        Command::Serve(options) => serve::check(options)?,
        Command::Completions { shell } => {
            let mut program = Args::command();
            let name = program.get_name().to_owned();
            clap_complete::generate(*shell, &mut program, name, &mut std::io::stdout());
            return Ok(());
        }
        Command::Man => {
            let page = clap_mangen::Man::new(Args::command());
            return Ok(page.render(&mut std::io::stdout())?);
        }
        _ => {}
    }
    let url = target::url(&common)?;
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
    let (action, selection, yes) = match command {
        Command::List {
            state,
            prefix,
            error,
            form,
            limit,
            after,
        } => {
            let prefix = prefix.map(|prefix| operator.prefix(&prefix, form));
            let filter = Filter {
                state: state.into(),
                prefix: prefix.transpose()?,
                error,
            };
            return list::list(&operator, json, &filter, limit, after.as_deref()).await;
        }
        Command::Show { key, form } => return list::show(&operator, json, &key, form).await,
        Command::Instances => return stats::instances(&operator, json).await,
        Command::Remove { which, sure } => {
            let which = change::waiting(&operator, which).await?;
            (Action::Remove, which, sure.yes)
        }
        Command::Move { which, delay, sure } => {
            let which = change::waiting(&operator, which).await?;
            (Action::MoveIn(delay), which, sure.yes)
        }
        Command::Run { which, sure } => {
            let which = change::waiting(&operator, which).await?;
            (Action::Run, which, sure.yes)
        }
        Command::Release { which, form } => {
            let which = change::claims(&operator, which, form).await?;
            (Action::Release, which, false)
        }
        Command::Retry { which, form } => {
            let which = change::dead(&operator, which, form).await?;
            (Action::Retry, which, false)
        }
        Command::Discard {
            which,
            form,
            in_flight,
            sure,
        } => {
            let action = if in_flight {
                Action::Acknowledge
            } else {
                Action::Discard
            };
            let which = change::dead(&operator, which, form).await?;
            (action, which, sure.yes)
        }
        Command::Purge { sure } => (Action::Purge, Selection::All, sure.yes),
        Command::Stats
        | Command::Watch { .. }
        | Command::Serve(_)
        | Command::Completions { .. }
        | Command::Man => return Ok(()),
    };
    change::change(&operator, json, action, selection, yes).await
}

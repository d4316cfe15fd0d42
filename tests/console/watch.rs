//! A client of the console, and the server that it asks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use console_api::Attribute;
use console_api::async_ops::AsyncOp;
use console_api::field::Value;
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::resources::{PollOp, Resource, Stats};
use console_subscriber::{ConsoleLayer, ServerParts};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Streaming;
use tonic::transport::Server;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::prelude::*;

/// How long a test waits for what it expects to see.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The console of this process, which shows the timers of all tests.
fn console() -> SocketAddr {
    static CONSOLE: OnceLock<SocketAddr> = OnceLock::new();
    *CONSOLE.get_or_init(|| {
        let (layer, server) = ConsoleLayer::builder()
            .publish_interval(Duration::from_millis(50))
            .event_buffer_capacity(1 << 17)
            .build();
        tracing_subscriber::registry().with(layer).init();
        let (send, address) = mpsc::channel();
        thread::spawn(move || {
            // The console's own timers and tasks are no subject.
            let _quiet = tracing::subscriber::set_default(NoSubscriber::default());
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let ServerParts {
                    instrument_server,
                    aggregator,
                    ..
                } = server.into_parts();
                tokio::spawn(aggregator.run());
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                send.send(listener.local_addr().unwrap()).unwrap();
                let server = Server::builder().add_service(instrument_server);
                let connections = TcpListenerStream::new(listener);
                server.serve_with_incoming(connections).await.unwrap();
            });
        });
        address.recv().unwrap()
    })
}

/// Tests take turns: where two threads are the first to emit an event, the console misses one of
/// the two.
static TURN: Mutex<()> = Mutex::new(());

/// All that the console has shown so far.
pub(crate) struct Watch {
    _turn: MutexGuard<'static, ()>,
    updates: Streaming<Update>,
    seen: Seen,
}

#[derive(Default)]
pub(crate) struct Seen {
    resources: HashMap<u64, Resource>,
    stats: HashMap<u64, Stats>,
    operations: Vec<AsyncOp>,
    polls: Vec<PollOp>,
}

impl Watch {
    /// To be called before the timers are made: polls before it are not shown.
    #[allow(clippy::await_holding_lock)] // each test has its own thread and runtime
    pub(crate) async fn start() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let address = format!("http://{}", console());
        let mut client = InstrumentClient::connect(address).await.unwrap();
        // The first timer of a runtime starts its wheel, which asks Tokio for a timer at the
        // caller's line.
        let _wheel = tickwheel::time::wheel();
        let updates = client.watch_updates(InstrumentRequest {}).await.unwrap();
        Watch {
            _turn: turn,
            updates: updates.into_inner(),
            seen: Seen::default(),
        }
    }

    /// Waits until `find` finds what it looks for.
    #[track_caller]
    pub(crate) fn until<'a, R, F>(
        &'a mut self,
        expected: &str,
        find: F,
    ) -> impl Future<Output = R> + use<'a, R, F>
    where
        F: Fn(&Seen) -> Option<R>,
    {
        let failure = format!(
            "{}: the console does not show {expected}",
            std::panic::Location::caller()
        );
        async move {
            let found = async {
                loop {
                    if let Some(found) = find(&self.seen) {
                        return found;
                    }
                    let update = self.updates.message().await.unwrap();
                    self.seen.add(update.expect("the console has ended"));
                }
            };
            let found = tokio::time::timeout(TIME_LIMIT, found).await;
            found.unwrap_or_else(|_| panic!("{failure}"))
        }
    }

    /// Waits for the resource that was made at this line of the test.
    #[track_caller]
    pub(crate) fn resource(&mut self, line: u32) -> impl Future<Output = Resource> {
        self.until(&format!("a resource of line {line}"), move |seen| {
            let mut resources = seen.resources.values();
            resources.find(|resource| is_at(resource, line)).cloned()
        })
    }
}

fn is_at(resource: &Resource, line: u32) -> bool {
    let location = resource.location.clone().unwrap_or_default();
    location.line == Some(line)
        && location
            .file
            .is_some_and(|file| file.ends_with("console.rs"))
}

impl Seen {
    fn add(&mut self, update: Update) {
        if let Some(update) = update.resource_update {
            let resources = update.new_resources.into_iter();
            (self.resources).extend(resources.map(|resource| (id(&resource.id), resource)));
            self.stats.extend(update.stats_update);
            self.polls.extend(update.new_poll_ops);
        }
        if let Some(update) = update.async_op_update {
            self.operations.extend(update.new_async_ops);
        }
    }

    /// A part of the resource's state, with its unit.
    pub(crate) fn state(&self, resource: &Resource, name: &str) -> Option<(Value, String)> {
        let stats = self.stats.get(&id(&resource.id))?;
        let matches = |attribute: &&Attribute| {
            let field = attribute.field.as_ref();
            field.is_some_and(|field| field.name == Some(name.into()))
        };
        let attribute = stats.attributes.iter().find(matches)?.clone();
        Some((attribute.field?.value?, attribute.unit.unwrap_or_default()))
    }

    pub(crate) fn is_dropped(&self, resource: &Resource) -> bool {
        let stats = self.stats.get(&id(&resource.id));
        stats.is_some_and(|stats| stats.dropped_at.is_some())
    }

    /// The sources of the resource's operations, in alphabetical order.
    pub(crate) fn sources(&self, resource: &Resource) -> Vec<&str> {
        let operations = self.operations.iter();
        let operations = operations.filter(|operation| operation.resource_id == resource.id);
        let mut sources: Vec<&str> = operations.map(|operation| &*operation.source).collect();
        sources.sort_unstable();
        sources
    }

    /// The polls of the resource within an operation and a task: by which call, and whether it was
    /// ready.
    pub(crate) fn polls(&self, resource: &Resource) -> Vec<(&str, bool)> {
        let polls = self.polls.iter();
        let polls = polls.filter(|poll| {
            poll.resource_id == resource.id && poll.task_id.is_some() && poll.async_op_id.is_some()
        });
        polls.map(|poll| (&*poll.name, poll.is_ready)).collect()
    }
}

fn id(id: &Option<console_api::Id>) -> u64 {
    id.as_ref().expect("it has an id").id
}

//! The calls of an operator on one namespace, whatever the types of its keys and values.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use tickwheel_durable::Charter;
use tickwheel_durable::store::{
    Answer, Change, ChangedRows, Counts, DeadChange, DeadRows, Inspect, List, MAX_KEY_ROWS,
    Namespace, PrefixChange, PrefixRows, RowPage, Settle, Settled, Settlement, State, Store,
    StoreTime, Stored, StoredInstance, Terms, Version, Write, WriteOutcome,
};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::shown::{from_hex, from_line, line};

/// Released timers that are due are hinted to the instances; how far ahead does not matter.
const NEAR: Terms = Terms::new(Duration::from_secs(1), None);

/// A store, asked with a time limit, and where changes are logged.
#[derive(Clone)]
pub(crate) struct StoreAccess {
    store: Arc<dyn Store>,
    pub(crate) limit: Duration,
    pub(crate) log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for StoreAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAccess")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl StoreAccess {
    /// Logs on standard error.
    pub(crate) fn new(store: Box<dyn Store>, limit: Duration) -> Self {
        StoreAccess {
            store: store.into(),
            limit,
            log: Arc::new(write_stderr),
        }
    }

    /// Gives back what the store holds open: an SQLite file is whole then, if no other process has
    /// it open.
    #[cfg(feature = "program")]
    pub(crate) async fn close(&self) {
        let _ = timeout(self.limit, self.store.close()).await;
    }

    async fn call<T>(&self, answer: Answer<'_, T>) -> Result<T, Failure> {
        let answered = timeout(self.limit, answer).await;
        Ok(answered.map_err(|_| Failure::timeout(self.limit))??)
    }

    fn inspect(&self) -> &dyn Inspect {
        self.store.inspect()
    }

    /// The operators of all namespaces, or of the one with that name, if it is there.
    pub(crate) async fn operators(
        &self,
        only: Option<&Namespace>,
    ) -> Result<Vec<Operator>, Failure> {
        let operator = |namespace, charter: Charter| Operator {
            access: self.clone(),
            namespace,
            codec: charter.codec,
            parts: usize::try_from(charter.parts).unwrap_or(1),
        };
        if let Some(name) = only {
            let charter = self.call(self.inspect().charter(name)).await?;
            let found = charter.map(|charter| operator(name.clone(), charter));
            return Ok(found.into_iter().collect());
        }
        let all = self.call(self.inspect().namespaces()).await?.into_iter();
        Ok(all
            .map(|found| operator(found.name, found.charter))
            .collect())
    }
}

/// Writes a line on standard error, whose reader may have gone.
pub(crate) fn write_stderr(line: &str) {
    drop(writeln!(io::stderr(), "{line}"));
}

/// A change of many rows, step by step.
pub(crate) enum Bulk {
    /// Deletes all.
    Purge,
    Waiting(PrefixChange),
    Dead(DeadRows, DeadChange),
}

/// A namespace of a store.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) access: StoreAccess,
    pub(crate) namespace: Namespace,
    pub(crate) codec: String,
    /// How many parts the namespace has, of which this may be one.
    #[cfg_attr(not(feature = "program"), allow(dead_code))] // the page asks part by part
    pub(crate) parts: usize,
}

impl Operator {
    fn store(&self) -> &dyn Store {
        &*self.access.store
    }

    /// The operators of all parts, if this is the first of a namespace; otherwise this one.
    #[cfg(feature = "program")]
    pub(crate) fn all_parts(&self) -> Vec<Operator> {
        let parts = if self.namespace.is_part() {
            1
        } else {
            self.parts
        };
        let part = |number| Operator {
            namespace: self.namespace.part(number),
            ..self.clone()
        };
        (0..parts.max(1)).map(part).collect()
    }

    pub(crate) async fn counts(&self) -> Result<Counts, Failure> {
        self.access.call(self.store().count(&self.namespace)).await
    }

    pub(crate) async fn instances(&self) -> Result<Vec<StoredInstance>, Failure> {
        let call = self.access.inspect().instances(&self.namespace);
        self.access.call(call).await
    }

    pub(crate) async fn count_due(&self, times: Vec<StoreTime>) -> Result<Vec<u64>, Failure> {
        let call = self.access.inspect().count_due(&self.namespace, times);
        self.access.call(call).await
    }

    /// A page of timers, which may be shorter.
    pub(crate) async fn list(&self, request: List) -> Result<Vec<Stored>, Failure> {
        let call = self.store().list(&self.namespace, request);
        self.access.call(call).await
    }

    pub(crate) async fn with_prefix(&self, request: PrefixRows) -> Result<RowPage, Failure> {
        let inspect = self.access.inspect();
        let call = inspect.rows_with_prefix(&self.namespace, request);
        self.access.call(call).await
    }

    pub(crate) async fn rows_of(&self, key: Vec<u8>) -> Result<Vec<Stored>, Failure> {
        let call = self.store().rows_of(&self.namespace, key, MAX_KEY_ROWS);
        self.access.call(call).await
    }

    /// The stored form of a key as a person writes it: the first of its readings that has timers,
    /// else the last: its bytes, what is [shown](crate::shown) so, the text of a string of the
    /// codec. In hexadecimal digits it has one reading.
    pub(crate) async fn key(&self, key: &str, is_hex: bool) -> Result<Vec<u8>, Failure> {
        if is_hex {
            return digits(key);
        }
        let mut meant = from_line(key);
        if line(&meant, usize::MAX) != key {
            meant = key.into();
        }
        let mut readings = vec![key.into(), meant.clone()];
        if self.is_json() {
            let meant = String::from_utf8(meant).ok();
            for text in meant.as_deref().into_iter().chain([key]) {
                readings.push(serde_json::Value::from(text).to_string().into());
            }
        }
        readings.dedup();
        let last = readings.pop().unwrap_or_default();
        for reading in readings {
            if !self.rows_of(reading.clone()).await?.is_empty() {
                return Ok(reading);
            }
        }
        Ok(last)
    }

    /// The first bytes of the keys that are meant by the beginning of one: its first reading that a
    /// timer in that state has, else the first one. It may begin a string, be as it is given, or be
    /// [shown](crate::shown) so.
    pub(crate) async fn prefix(
        &self,
        prefix: &str,
        is_hex: bool,
        state: State,
    ) -> Result<Vec<u8>, Failure> {
        if is_hex {
            return digits(prefix);
        }
        let is_json = self.is_json();
        let readings = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let text = std::str::from_utf8(bytes).ok().filter(|_| is_json);
            let quoted = text.map(|text| serde_json::Value::from(text).to_string());
            let quoted = quoted.map(|text| text[..text.len() - 1].into());
            // JSON that begins with a letter is a word that makes no key, such as `null`: a string
            // is meant.
            let is_string = is_json && prefix.starts_with(char::is_alphabetic);
            let plain = (!is_string).then(|| bytes.to_vec());
            quoted.into_iter().chain(plain).collect()
        };
        let (mut all, meant) = (readings(prefix.as_bytes()), from_line(prefix));
        let given = all.len();
        if !meant.is_empty() && meant != prefix.as_bytes() {
            all.extend(readings(&meant));
        }
        if let [only] = &all[..] {
            return Ok(only.clone());
        }
        for (number, reading) in all.iter().enumerate() {
            let found = self.first(state, reading.clone()).await?;
            // Other keys may begin with the bytes that are meant, and are shown otherwise.
            let is_shown = |row: Stored| {
                let shown = line(&row.key, usize::MAX);
                let [shown, prefix] = [&shown, prefix].map(|text| text.trim_start_matches('"'));
                shown.starts_with(prefix)
            };
            if found.is_some_and(|row| number < given || is_shown(row)) {
                return Ok(reading.clone());
            }
        }
        Ok(all.swap_remove(0))
    }

    /// A timer whose key begins with that.
    async fn first(&self, state: State, prefix: Vec<u8>) -> Result<Option<Stored>, Failure> {
        let mut request = PrefixRows::new(state, prefix, 1);
        loop {
            let mut page = self.with_prefix(request.clone()).await?;
            request.after = page.next;
            if !page.rows.is_empty() || request.after.is_none() {
                return Ok(page.rows.pop());
            }
        }
    }

    fn is_json(&self) -> bool {
        self.codec == "json"
    }

    /// Settles a claim.
    pub(crate) async fn settle(&self, token: Version, how: Settlement) -> Result<Settled, Failure> {
        let settles = vec![Settle::new(token, how)];
        let call = self.store().settle(&self.namespace, settles, NEAR);
        Ok(self.access.call(call).await?.pop().unwrap_or(Settled::Lost))
    }

    /// Changes the waiting timer with this key.
    pub(crate) async fn change_key(
        &self,
        key: Vec<u8>,
        change: Change,
    ) -> Result<WriteOutcome, Failure> {
        // Nothing changes after the caller has given up.
        let until = self.counts().await?.now.after(self.access.limit);
        let writes = vec![Write::new(key, change.action())];
        let call = self
            .store()
            .write(&self.namespace, writes, NEAR.until(until));
        let outcome = self.access.call(call).await?.pop();
        Ok(outcome.unwrap_or(WriteOutcome::Absent))
    }

    /// Makes a step of a change.
    pub(crate) async fn step(&self, bulk: &mut Bulk) -> Result<ChangedRows, Failure> {
        let (store, space) = (self.store(), &self.namespace);
        let step: Answer<'_, ChangedRows> = match bulk {
            Bulk::Purge => store.purge(space),
            Bulk::Waiting(changes) => Box::pin(changes.step(store, space)),
            Bulk::Dead(which, change) => store.change_dead(space, which.clone(), *change),
        };
        self.access.call(step).await
    }
}

fn digits(text: &str) -> Result<Vec<u8>, Failure> {
    from_hex(text)
        .ok_or_else(|| Failure::Usage(format!("{text:?} is not pairs of hexadecimal digits")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[tokio::test]
    async fn only_json_has_quotes_around_its_strings() {
        let case = Case::new().await;
        case.set(0..1, Duration::from_secs(60)).await;
        let json = case.operator.clone();
        let text = Operator {
            codec: "text".to_owned(),
            ..json.clone()
        };
        for (operator, given, is_hex, prefix, key) in [
            (&json, "a", false, "\"a", "\"a\""),
            (&json, "a\"b", false, "\"a\\\"b", "\"a\\\"b\""),
            (&json, "61", true, "a", "a"),
            (&text, "a", false, "a", "a"),
            (&text, "61", true, "a", "a"),
        ] {
            let codec = &operator.codec;
            let found = operator.prefix(given, is_hex, State::Waiting).await;
            let found = found.expect("it is right");
            assert_eq!(found, prefix.as_bytes(), "{codec} {given}");
            let found = operator.key(given, is_hex).await.expect("it is right");
            assert_eq!(found, key.as_bytes(), "{codec} {given}");
        }
        // A key that has timers is meant as it is stored.
        let stored = "\"order 0\"";
        let found = json.key(stored, false).await;
        assert_eq!(found.expect("it is right"), stored.as_bytes());
    }

    #[tokio::test]
    async fn prefix_of_a_key_that_is_no_string_has_no_quote() {
        let case = Case::new().await;
        let keys = [&b"17"[..], b"[1,\"a\"]", b"\"2 a\""].map(<[u8]>::to_vec);
        case.set_keys(keys, Duration::from_secs(60)).await;
        for (given, prefix) in [("1", "1"), ("[1", "[1"), ("\"2", "\"2"), ("2", "\"2")] {
            let found = (case.operator).prefix(given, false, State::Waiting);
            let found = found.await.expect("it is right");
            assert_eq!(found, prefix.as_bytes(), "{given}");
        }
        // One of a dead timer that no waiting timer has.
        let tokens = case.in_flight(0..1).await;
        case.die(tokens, "why").await;
        let found = case.operator.prefix("\"o", false, State::Dead).await;
        assert_eq!(found.expect("it is right"), b"\"o");
    }

    #[tokio::test]
    async fn key_is_found_as_it_is_shown() {
        let case = Case::new().await;
        let odd = ["\"a\u{200b}b\"".as_bytes(), b"\xff\x01", b"0xff", b"a\nb"];
        let keys = odd.map(<[u8]>::to_vec);
        case.set_keys(keys, Duration::from_secs(60)).await;
        for key in odd {
            let shown = crate::shown::line(key, 100);
            let found = case.operator.key(&shown, false).await;
            assert_eq!(found.expect("it is right"), key, "{shown}");
        }
        // Without its quotes too.
        let found = case.operator.key("a\\u{200b}b", false).await;
        assert_eq!(found.expect("it is right"), odd[0]);
        // What no key is shown as means no other one.
        case.set_keys([b"\"a\"".to_vec()], Duration::from_secs(60))
            .await;
        let found = case.operator.key("0x61", false).await;
        assert_eq!(found.expect("it is right"), b"\"0x61\"");
        case.set_keys([b"\x01\xff".to_vec()], Duration::from_secs(60))
            .await;
        for (shown, prefix) in [
            ("0xff01", &b"\xff\x01"[..]),
            ("0xff", b"0xff"),
            ("0x01", b"\x01"),
            ("a\\u{200b}", "\"a\u{200b}".as_bytes()),
            ("\"a\\u{200b}", "\"a\u{200b}".as_bytes()),
            // A key that begins with an `a` is not shown so.
            ("0x61", b"\"0x61"),
        ] {
            let found = case.operator.prefix(shown, false, State::Waiting).await;
            assert_eq!(found.expect("it is right"), prefix, "{shown}");
        }
    }
}

//! Pages of timers in one state, for the program and the page.

use tickwheel_durable::store::{List, PrefixCursor, PrefixRows, State, StoreTime, Stored, Version};

use crate::failure::Failure;
use crate::operator::Operator;
use crate::shown::{from_hex, hex};

/// A page with a filter by error looks at about 2,000 rows, and may be shorter then.
const LOOKED_AT: usize = 2_000;

/// At least 50 rows are looked at together to find those that fit a filter.
const TOGETHER: usize = 50;

/// Which timers are listed.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) state: State,
    /// Those with keys that begin with this, by key. Otherwise they are listed by time.
    pub(crate) prefix: Option<Vec<u8>>,
    /// Those with errors that contain this.
    pub(crate) error: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Stored>,
    /// Where the next page begins, if it has a row.
    pub(crate) next: Option<String>,
}

/// A position in a list.
#[derive(Clone)]
enum Cursor {
    Time(State, Option<(StoreTime, Version)>),
    Key { request: PrefixRows, is_over: bool },
}

impl Cursor {
    fn new(filter: &Filter, after: Option<&str>) -> Result<Self, Failure> {
        let wrong = |after: &str| {
            Failure::Usage(format!(
                "{after:?} is not where a page of this list has ended"
            ))
        };
        let Some(prefix) = &filter.prefix else {
            let after = after.map(|text| from_at(text).ok_or_else(|| wrong(text)));
            return Ok(Cursor::Time(filter.state, after.transpose()?));
        };
        let mut request = PrefixRows::new(filter.state, prefix.clone(), 0);
        if let Some(text) = after {
            let bytes = from_hex(text).ok_or_else(|| wrong(text))?;
            request.after = Some(PrefixCursor(bytes));
        }
        Ok(Cursor::Key {
            request,
            is_over: false,
        })
    }

    /// At most so many rows after the position, which follows them. None after the last.
    async fn advance(&mut self, operator: &Operator, limit: usize) -> Result<Vec<Stored>, Failure> {
        match self {
            Cursor::Time(state, after) => {
                let rows = operator.list(List::new(*state, *after, limit)).await?;
                if let Some(last) = rows.last() {
                    *after = Some((last.due, last.version));
                }
                Ok(rows)
            }
            Cursor::Key { request, is_over } => {
                while !*is_over {
                    request.limit = limit;
                    let page = operator.with_prefix(request.clone()).await?;
                    *is_over = page.next.is_none();
                    request.after = page.next;
                    if !page.rows.is_empty() {
                        return Ok(page.rows);
                    }
                }
                Ok(Vec::new())
            }
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Cursor::Time(_, after) => after.map(at),
            Cursor::Key { request, .. } => request.after.as_ref().map(|cursor| hex(&cursor.0)),
        }
    }
}

/// A time and a version as a text.
pub(crate) fn at((time, version): (StoreTime, Version)) -> String {
    format!("{}-{}", time.as_micros(), version.0)
}

pub(crate) fn from_at(text: &str) -> Option<(StoreTime, Version)> {
    let (due, version) = text.split_once('-')?;
    let due = StoreTime::from_micros(due.parse().ok()?);
    Some((due, Version(version.parse().ok()?)))
}

/// A page of at most so many timers.
pub(crate) async fn page(
    operator: &Operator,
    filter: &Filter,
    after: Option<&str>,
    limit: usize,
) -> Result<Rows, Failure> {
    let fits = |row: &Stored| match &filter.error {
        Some(text) => (row.error.as_ref()).is_some_and(|error| error.contains(text)),
        None => true,
    };
    let (most, together) = match filter.error {
        Some(_) => (LOOKED_AT, TOGETHER),
        None => (usize::MAX, 1),
    };
    let mut cursor = Cursor::new(filter, after)?;
    let (mut rows, mut looked_at) = (Vec::new(), 0);
    while rows.len() < limit {
        let (before, wanted) = (cursor.clone(), limit - rows.len());
        let mut found = cursor.advance(operator, wanted.max(together)).await?;
        let too_many = |found: &[Stored]| {
            let mut fitting = found.iter().enumerate().filter(|(_, row)| fits(row));
            fitting.nth(wanted).map(|(end, _)| end)
        };
        // The next page begins with the first row that is too many. Others may come into its place
        // meanwhile.
        while let Some(end) = too_many(&found) {
            cursor = before.clone();
            found = cursor.advance(operator, end).await?;
        }
        if found.is_empty() {
            return Ok(Rows { rows, next: None });
        }
        looked_at += found.len();
        rows.extend(found.into_iter().filter(fits));
        if looked_at >= most {
            break;
        }
    }
    let next = cursor.text();
    loop {
        let found = cursor.advance(operator, together).await?;
        looked_at += found.len();
        if found.is_empty() {
            return Ok(Rows { rows, next: None });
        }
        if found.iter().any(fits) || looked_at >= most {
            return Ok(Rows { rows, next });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    fn with_error(error: &str) -> Filter {
        Filter {
            state: State::Dead,
            prefix: None,
            error: Some(error.to_owned()),
        }
    }

    /// A request ends, however rare what it looks for is.
    #[tokio::test]
    async fn page_with_a_filter_looks_at_so_many_timers() {
        const USUAL: usize = LOOKED_AT + 100;
        let case = Case::new().await;
        let mut usual = case.in_flight(0..USUAL + 1).await;
        let rare = usual.split_off(USUAL);
        case.die(usual, "usual").await;
        case.die(rare, "rare").await;
        let calls = case.store.calls();
        let first = page(&case.operator, &with_error("rare"), None, 5).await;
        let first = first.expect("it lists");
        assert!(case.store.calls() - calls < 100, "it asks for many at once");
        assert_eq!(first.rows, []);
        let after = first.next.expect("there are more to look at");
        let rest = page(&case.operator, &with_error("rare"), Some(&after), 5).await;
        let rest = rest.expect("it lists");
        assert_eq!((rest.rows.len(), rest.next), (1, None));
    }

    /// A page that is full ends, too, however far away the next match is.
    #[tokio::test]
    async fn page_with_a_filter_does_not_look_far_for_the_next_one() {
        const USUAL: usize = 2 * LOOKED_AT;
        let case = Case::new().await;
        let mut tokens = case.in_flight(0..USUAL + 6).await;
        let far = tokens.split_off(USUAL + 5);
        let usual = tokens.split_off(5);
        for (tokens, error) in [(tokens, "rare"), (usual, "usual"), (far, "rare")] {
            case.die(tokens, error).await;
        }
        let (mut found, mut pages, mut after) = (0, 0, None);
        loop {
            let calls = case.store.calls();
            let page = page(&case.operator, &with_error("rare"), after.as_deref(), 5).await;
            let page = page.expect("it lists");
            let calls = case.store.calls() - calls;
            assert!(calls < LOOKED_AT as u64 / TOGETHER as u64 + 10, "{calls}");
            found += page.rows.len();
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, 6);
        assert!((2..6).contains(&pages), "{pages}");
    }

    #[tokio::test]
    async fn pages_with_a_filter_have_each_timer_once() {
        let case = Case::new().await;
        for number in 0..130 {
            let error = if number % 3 == 0 { "rare" } else { "usual" };
            let tokens = case.in_flight(number..number + 1).await;
            case.die(tokens, error).await;
        }
        for prefix in [None, Some(b"\"order".to_vec())] {
            let mut filter = with_error("rare");
            filter.prefix = prefix;
            let (mut keys, mut after) = (Vec::new(), None);
            loop {
                let found = page(&case.operator, &filter, after.as_deref(), 7).await;
                let found = found.expect("it lists");
                keys.extend(found.rows.into_iter().map(|row| row.key));
                after = found.next;
                if after.is_none() {
                    break;
                }
                assert_eq!(keys.len() % 7, 0, "each page but the last is full");
            }
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), 44, "{filter:?}");
        }
    }
}

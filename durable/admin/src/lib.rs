//! The page of an operator for the durable timers of
//! [`tickwheel-durable`](https://docs.rs/tickwheel-durable): what waits, what is in flight, what
//! has failed, which instances there are, and changes of all of that.
//!
//! [`Page`] has it as routes of an axum service, behind the sign-in of that service. The program
//! `tickwheel-admin` serves the same page by itself, and does the same in a terminal: the
//! [README](https://docs.rs/crate/tickwheel-admin/latest) is about it. Without its feature
//! `program`, a default, the crate needs no more than the page does.
//!
//! # Examples
//!
//! The page at `/timers` of a service, for users that have signed in:
//!
//! ```
//! use axum::Router;
//! use axum::extract::Request;
//! use axum::http::{HeaderMap, StatusCode};
//! use axum::middleware::{self, Next};
//! use axum::response::Response;
//! use tickwheel_admin::{Page, User};
//! # use tickwheel_durable::Memory;
//!
//! async fn signed_in(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let name = user_of(request.headers()).ok_or(StatusCode::UNAUTHORIZED)?;
//!     request.extensions_mut().insert(User(name));
//!     Ok(next.run(request).await)
//! }
//!
//! # let store = Memory::new();
//! let page = Page::new(store).allow_changes().routes();
//! let app: Router = Router::new().nest("/timers", page.layer(middleware::from_fn(signed_in)));
//! # fn user_of(_: &HeaderMap) -> Option<String> { None }
//! # drop(app);
//! ```

#![forbid(unsafe_code)]

mod actions;
#[cfg(test)]
mod case;
mod clock;
mod details;
mod failure;
mod health;
mod listing;
mod operator;
mod page;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod program;
mod shown;

pub use page::{Page, User};

//! The service, and its statements.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use sqlx::PgPool;

/// The namespace of the reminders.
pub const REMINDERS: &str = "reminders";

pub fn router(pool: PgPool) -> Router {
    Router::new()
        .route("/orders/{id}", post(order))
        .route("/orders/{id}/pay", post(pay))
        .with_state(pool)
}

pub async fn create_tables(pool: &PgPool) -> sqlx::Result<()> {
    let table = "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, paid bool NOT NULL DEFAULT false)";
    sqlx::query(table).execute(pool).await.map(drop)
}

/// Takes an order, to be reminded of in three days.
async fn order(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<StatusCode, Failure> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO orders (id) VALUES ($1)")
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("SELECT tickwheel_set($1, $2, to_jsonb($3), now() + interval '3 days')")
        .bind(REMINDERS)
        .bind(key(id))
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    // Both, or neither.
    transaction.commit().await?;
    Ok(StatusCode::CREATED)
}

/// An order is paid: no reminder of it comes once this has returned, unless it has fired already.
async fn pay(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<StatusCode, Failure> {
    let mut transaction = pool.begin().await?;
    let paid = sqlx::query("UPDATE orders SET paid = true WHERE id = $1 AND NOT paid")
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    if paid.rows_affected() == 0 {
        return Ok(StatusCode::NOT_FOUND);
    }
    sqlx::query("SELECT tickwheel_remove($1, $2)")
        .bind(REMINDERS)
        .bind(key(id))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(StatusCode::OK)
}

pub fn key(order: i64) -> String {
    format!("order {order}")
}

/// The database refused, or is away.
struct Failure(sqlx::Error);

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure(error)
    }
}

impl axum::response::IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        let is_there = |error: &dyn sqlx::error::DatabaseError| error.is_unique_violation();
        match self.0.as_database_error() {
            Some(error) if is_there(error) => StatusCode::CONFLICT.into_response(),
            _ => {
                eprintln!("the database: {}", self.0);
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        }
    }
}

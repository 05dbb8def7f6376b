//! Secrets of the server itself.

use async_trait::async_trait;
use keepsake_core::Timestamp;
use sqlx::Row;
use uuid::Uuid;

use super::PostgresIndex;
use crate::model::{AuditAction, Audited};
use crate::statements::operator::INSERT_OPERATOR_AUDIT;
use crate::statements::{
    ADD_SERVER_SECRET, REMOVE_SERVER_SECRET, RETIRE_OTHER_SECRETS, RETIRE_SERVER_SECRET,
    REWRAP_SERVER_SECRET, SERVER_SECRETS,
};
use crate::{IndexError, SecretIndex, ServerSecret};

#[async_trait]
impl SecretIndex for PostgresIndex {
    async fn server_secrets(&self, purpose: &str) -> Result<Vec<ServerSecret>, IndexError> {
        let rows = sqlx::query(SERVER_SECRETS)
            .bind(purpose)
            .fetch_all(&self.shared)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(ServerSecret {
                    kid: row.try_get(0)?,
                    purpose: purpose.to_owned(),
                    wrapped_key: row.try_get(1)?,
                    not_before: Timestamp::from_micros(row.try_get(2)?),
                    retired_at: row.try_get::<Option<i64>, _>(3)?.map(Timestamp::from_micros),
                })
            })
            .collect()
    }

    async fn add_server_secret(&self, secret: &ServerSecret) -> Result<bool, IndexError> {
        let changed = sqlx::query(ADD_SERVER_SECRET)
            .bind(&secret.kid)
            .bind(&secret.purpose)
            .bind(&secret.wrapped_key)
            .bind(secret.not_before.as_micros())
            .bind(secret.retired_at.map(Timestamp::as_micros))
            .execute(&self.shared)
            .await?;
        Ok(changed.rows_affected() > 0)
    }

    async fn rewrap_server_secret(&self, kid: &str, from: &[u8], to: &[u8]) -> Result<bool, IndexError> {
        let changed = sqlx::query(REWRAP_SERVER_SECRET)
            .bind(kid)
            .bind(from)
            .bind(to)
            .execute(&self.shared)
            .await?;
        Ok(changed.rows_affected() > 0)
    }

    async fn retire_server_secret(&self, kid: &str, at: Timestamp) -> Result<bool, IndexError> {
        let changed = sqlx::query(RETIRE_SERVER_SECRET)
            .bind(kid)
            .bind(at.as_micros())
            .execute(&self.shared)
            .await?;
        Ok(changed.rows_affected() > 0)
    }

    async fn rotate_server_secret(
        &self,
        secret: &ServerSecret,
        others_until: Option<Timestamp>,
        audited: &Audited,
    ) -> Result<bool, IndexError> {
        let mut transaction = self.shared.begin(None).await?;
        let added = sqlx::query(ADD_SERVER_SECRET)
            .bind(&secret.kid)
            .bind(&secret.purpose)
            .bind(&secret.wrapped_key)
            .bind(secret.not_before.as_micros())
            .bind(secret.retired_at.map(Timestamp::as_micros))
            .execute(&mut *transaction)
            .await?;
        if added.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some(until) = others_until {
            sqlx::query(RETIRE_OTHER_SECRETS)
                .bind(&secret.purpose)
                .bind(&secret.kid)
                .bind(until.as_micros())
                .execute(&mut *transaction)
                .await?;
        }
        let action = match others_until {
            None => AuditAction::TokenKeyRotated,
            Some(_) => AuditAction::TokenKeysDistrusted,
        };
        sqlx::query(INSERT_OPERATOR_AUDIT)
            .bind(audited.id)
            .bind(audited.at.as_micros())
            .bind(audited.by.to_string())
            .bind(action.name())
            .bind(None::<Uuid>)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn remove_server_secret(&self, kid: &str) -> Result<bool, IndexError> {
        let changed = sqlx::query(REMOVE_SERVER_SECRET)
            .bind(kid)
            .execute(&self.shared)
            .await?;
        Ok(changed.rows_affected() > 0)
    }
}

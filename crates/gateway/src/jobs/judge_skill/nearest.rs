//! The skill of the shelf that is most like the one being judged. Vectors of the shelf are kept; those that are missing
//! for the embedding in use are made when they are first needed.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::embed::{HASH_V1, cosine, hash_v1};
use gateway_core::ids::SkillId;
use gateway_core::skills::SkillSource;
use gateway_core::skills::judge::{Neighbour, compare, embedded_text};
use gateway_core::skills::rubric::{BUILTIN, Rubric};
use gateway_store::StoreError;
use gateway_store::skills::{self, SkillVector, UnembeddedSkill};
use serde_json::{Map, Value, json};

use crate::auth::Identity;
use crate::internal_call::{Endpoint, InternalRequest};
use crate::jobs::JobServices;

/// The newest entries of the shelf that are compared with.
const SHELF: i64 = 5_000;
/// Vectors that one judgement makes at most: with a provider's embedding they cost money.
const BUILTIN_BATCH: i64 = 500;
const PROVIDER_BATCH: i64 = 32;
/// Neighbours whose texts are compared word by word.
const CANDIDATES: usize = 3;
const TIME: Duration = Duration::from_secs(30);

pub async fn find(
    job_services: &Arc<JobServices>,
    identity: &Identity,
    skill: SkillId,
    source: &SkillSource,
    rubric: &Rubric,
) -> Result<Option<Neighbour>, StoreError> {
    let text = embedded_text(source);
    if rubric.embed_provider != BUILTIN {
        match by_provider(job_services, identity, skill, &text, rubric).await? {
            Ok((embedder, ours)) => {
                return nearest(job_services, skill, &text, &ours, &embedder, &rubric.embed_model).await;
            }
            Err(why) => tracing::info!(why, "skills are compared by the built-in embedding instead"),
        }
    }
    let dims = if rubric.embed_provider == BUILTIN { rubric.embed_dims } else { 256 };
    let size = usize::try_from(dims).unwrap_or(256);
    let embedder = format!("{BUILTIN}/{HASH_V1}/{dims}");
    for missing in skills::shelf_missing_vectors(&job_services.services.db, &embedder, BUILTIN_BATCH).await? {
        let vector = hash_v1(&text_of(&missing), size);
        skills::insert_vector(&job_services.services.db, missing.skill, missing.version, &embedder, &vector)
            .await?;
    }
    nearest(job_services, skill, &text, &hash_v1(&text, size), &embedder, HASH_V1).await
}

/// The embedder's name and our vector, or why the provider's embedding cannot be used.
async fn by_provider(
    job_services: &Arc<JobServices>,
    identity: &Identity,
    skill: SkillId,
    text: &str,
    rubric: &Rubric,
) -> Result<Result<(String, Vec<f32>), String>, StoreError> {
    let embedder = format!("{}/{}/{}", rubric.embed_provider, rubric.embed_model, rubric.embed_dims);
    let missing = skills::shelf_missing_vectors(&job_services.services.db, &embedder, PROVIDER_BATCH).await?;
    let inputs: Vec<String> = std::iter::once(text.to_owned()).chain(missing.iter().map(text_of)).collect();
    let body = json!({"model": rubric.embed_model, "input": inputs, "dimensions": rubric.embed_dims});
    let metadata = json!({"embed": "skill", "skill_id": skill});
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let question = InternalRequest {
        provider: rubric.embed_provider.clone(),
        endpoint: Endpoint::Embeddings,
        body: object(body),
        metadata: object(metadata),
        timeout: Some(TIME),
        is_counted: false,
    };
    let answer = match job_services.models.call_model(identity, question).await {
        Ok(answer) if answer.status.is_success() => answer,
        Ok(answer) => return Ok(Err(format!("the provider answered {}", answer.status.as_u16()))),
        Err(problem) => return Ok(Err(problem.message.to_string())),
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let mut vectors = read_vectors(&body);
    if vectors.len() != inputs.len() || vectors.iter().any(Vec::is_empty) {
        return Ok(Err("the provider's answer holds no embeddings".to_owned()));
    }
    let ours = vectors.remove(0);
    for (entry, vector) in missing.iter().zip(&vectors) {
        skills::insert_vector(&job_services.services.db, entry.skill, entry.version, &embedder, vector)
            .await?;
    }
    Ok(Ok((embedder, ours)))
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are kept in single precision")]
fn read_vectors(body: &Value) -> Vec<Vec<f32>> {
    let numbers = |entry: &Value| -> Vec<f32> {
        let list = entry["embedding"].as_array();
        list.into_iter().flatten().filter_map(Value::as_f64).map(|number| number as f32).collect()
    };
    body["data"].as_array().into_iter().flatten().map(numbers).collect()
}

async fn nearest(
    job_services: &JobServices,
    skill: SkillId,
    text: &str,
    ours: &[f32],
    embedder: &str,
    model: &str,
) -> Result<Option<Neighbour>, StoreError> {
    let shelf = skills::shelf_vectors(&job_services.services.db, embedder, skill, SHELF).await?;
    let mut near: Vec<(f32, &SkillVector)> =
        shelf.iter().map(|vector| (cosine(ours, &vector.numbers), vector)).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut best: Option<Neighbour> = None;
    for (similarity, vector) in near.into_iter().take(CANDIDATES) {
        let Some(found) = skills::find_on_shelf(&job_services.services.db, vector.skill).await? else {
            continue;
        };
        let theirs = embedded_text(&found.source);
        let neighbour = compare(&found.source.name, f64::from(similarity), model, text, &theirs);
        if best.as_ref().is_none_or(|best| best.closeness() < neighbour.closeness()) {
            best = Some(neighbour);
        }
    }
    Ok(best)
}

/// A text on the shelf was valid when it was put there.
fn text_of(entry: &UnembeddedSkill) -> String {
    SkillSource::from_raw(&entry.raw_source)
        .map_or_else(|_| entry.raw_source.clone(), |source| embedded_text(&source))
}

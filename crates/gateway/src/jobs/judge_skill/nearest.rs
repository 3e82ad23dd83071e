//! Finds the skill on the shelf that is most similar to the judged one. Embedding vectors of the shelf are stored;
//! missing vectors are computed on first use.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::embed::{HASH_V1, cosine, hash_v1};
use gateway_core::ids::SkillId;
use gateway_core::skills::SkillSource;
use gateway_core::skills::judge::{Neighbour, compare, embedded_text};
use gateway_core::skills::rubric::BUILTIN;
use gateway_store::StoreError;
use gateway_store::skills::{self, SkillVector, UnembeddedSkill};
use serde_json::{Map, Value, json};

use super::JudgeRequest;
use crate::internal_call::{Endpoint, InternalRequest};
use crate::jobs::JobServices;

/// Only this many of the newest skills on the shelf are compared.
const MAX_SHELF_SKILLS: i64 = 5_000;
/// Missing vectors that one judgement computes. The limit is lower for providers, because their embeddings cost money.
const MAX_BUILTIN_VECTORS: i64 = 500;
const MAX_PROVIDER_VECTORS: i64 = 32;
/// The number of nearest skills whose texts are compared word by word.
const MAX_CANDIDATES: usize = 3;
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The text of the judged skill with its vector.
struct EmbeddedText<'a> {
    text: &'a str,
    vector: Vec<f32>,
    /// The key of stored vectors that are comparable with this one.
    embedder: String,
    model: &'a str,
}

pub async fn find(
    job_services: &Arc<JobServices>,
    request: &JudgeRequest<'_>,
) -> Result<Option<Neighbour>, StoreError> {
    let (skill, rubric) = (request.job.skill, request.rubric);
    let text = embedded_text(request.source);
    if rubric.embed_provider != BUILTIN {
        match embed_with_provider(job_services, request, &text).await? {
            Ok(embedded) => return nearest(job_services, skill, &embedded).await,
            Err(reason) => {
                tracing::info!(
                    reason,
                    "the embedding provider failed; the built-in embedding is used instead"
                );
            }
        }
    }
    let dims = if rubric.embed_provider == BUILTIN { rubric.embed_dims } else { 256 };
    let size = usize::try_from(dims).unwrap_or(256);
    let embedder = format!("{BUILTIN}/{HASH_V1}/{dims}");
    for missing in
        skills::shelf_missing_vectors(&job_services.services.db, &embedder, MAX_BUILTIN_VECTORS).await?
    {
        let vector = hash_v1(&shelf_text(&missing), size);
        skills::insert_vector(&job_services.services.db, missing.skill, missing.version, &embedder, &vector)
            .await?;
    }
    let embedded = EmbeddedText { text: &text, vector: hash_v1(&text, size), embedder, model: HASH_V1 };
    nearest(job_services, skill, &embedded).await
}

/// Embeds the text and missing shelf entries in one call. The inner error is the reason why the provider cannot be
/// used.
async fn embed_with_provider<'a>(
    job_services: &Arc<JobServices>,
    request: &'a JudgeRequest<'_>,
    text: &'a str,
) -> Result<Result<EmbeddedText<'a>, String>, StoreError> {
    let rubric = request.rubric;
    let embedder = format!("{}/{}/{}", rubric.embed_provider, rubric.embed_model, rubric.embed_dims);
    let missing =
        skills::shelf_missing_vectors(&job_services.services.db, &embedder, MAX_PROVIDER_VECTORS).await?;
    let inputs: Vec<String> =
        std::iter::once(text.to_owned()).chain(missing.iter().map(shelf_text)).collect();
    let body = json!({"model": rubric.embed_model, "input": inputs, "dimensions": rubric.embed_dims});
    let metadata = json!({"embed": "skill", "skill_id": request.job.skill});
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let embedding_request = InternalRequest {
        provider: rubric.embed_provider.clone(),
        endpoint: Endpoint::Embeddings,
        body: object(body),
        metadata: object(metadata),
        timeout: Some(EMBEDDING_TIMEOUT),
        is_counted: false,
    };
    let response = match job_services.models.call_model(request.identity, embedding_request).await {
        Ok(response) if response.status.is_success() => response,
        Ok(response) => {
            return Ok(Err(format!("the provider returned status {}", response.status.as_u16())));
        }
        Err(problem) => return Ok(Err(problem.message.to_string())),
    };
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let mut vectors = parse_vectors(&body);
    if vectors.len() != inputs.len() || vectors.iter().any(Vec::is_empty) {
        return Ok(Err("the provider's response does not have one embedding per input".to_owned()));
    }
    let vector = vectors.remove(0);
    for (entry, entry_vector) in missing.iter().zip(&vectors) {
        skills::insert_vector(&job_services.services.db, entry.skill, entry.version, &embedder, entry_vector)
            .await?;
    }
    Ok(Ok(EmbeddedText { text, vector, embedder, model: &rubric.embed_model }))
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are stored in single precision")]
fn parse_vectors(body: &Value) -> Vec<Vec<f32>> {
    let numbers = |entry: &Value| -> Vec<f32> {
        let list = entry["embedding"].as_array();
        list.into_iter().flatten().filter_map(Value::as_f64).map(|number| number as f32).collect()
    };
    body["data"].as_array().into_iter().flatten().map(numbers).collect()
}

async fn nearest(
    job_services: &JobServices,
    skill: SkillId,
    embedded: &EmbeddedText<'_>,
) -> Result<Option<Neighbour>, StoreError> {
    let shelf =
        skills::shelf_vectors(&job_services.services.db, &embedded.embedder, skill, MAX_SHELF_SKILLS).await?;
    let mut ranked: Vec<(f32, &SkillVector)> =
        shelf.iter().map(|vector| (cosine(&embedded.vector, &vector.numbers), vector)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut best: Option<Neighbour> = None;
    for (similarity, vector) in ranked.into_iter().take(MAX_CANDIDATES) {
        let Some(found) = skills::find_on_shelf(&job_services.services.db, vector.skill).await? else {
            continue;
        };
        let other = embedded_text(&found.source);
        let similarity = f64::from(similarity);
        let neighbour = compare(&found.source.name, similarity, embedded.model, embedded.text, &other);
        if best.as_ref().is_none_or(|best| best.closeness() < neighbour.closeness()) {
            best = Some(neighbour);
        }
    }
    Ok(best)
}

/// The text to embed of a skill on the shelf. Its source was valid when it was published, so parsing rarely fails.
fn shelf_text(entry: &UnembeddedSkill) -> String {
    SkillSource::from_raw(&entry.raw_source)
        .map_or_else(|_| entry.raw_source.clone(), |source| embedded_text(&source))
}

//! Finds the skill on the shelf that is most similar to the judged one. Embedding vectors of the shelf are stored;
//! missing vectors are computed on first use. Vectors of the built-in embedding are shared. Those of a provider belong
//! to the organization and the address that they came from, because a tenant's provider can return anything.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::embed::{HASH_V1, cosine, hash_v1};
use gateway_core::ids::{OrgId, SkillId};
use gateway_core::logs::LogSource;
use gateway_core::skills::SkillSource;
use gateway_core::skills::judge::{Neighbour, compare, embedded_text};
use gateway_core::skills::rubric::{BUILTIN, Rubric};
use gateway_store::skills::{self, SkillVector, UnembeddedSkill, VectorSpace};
use serde_json::{Map, Value, json};

use super::JudgeRequest;
use crate::compute::{Cancellation, WaitLimits};
use crate::internal_call::{Endpoint, InternalRequest};
use crate::jobs::{JobError, JobServices};
use crate::services::Services;
use crate::targets::Target;

/// Only this many of the newest skills on the shelf are compared.
const MAX_SHELF_SKILLS: usize = 5_000;
/// Vectors in memory at once.
const PAGE_BYTES: usize = 1 << 20;
/// Missing vectors that one judgement computes. The limit is lower for providers, because their embeddings cost money.
const MAX_BUILTIN_VECTORS: usize = 500;
const MAX_PROVIDER_VECTORS: i64 = 32;
/// Texts in memory at once.
const MISSING_PAGE: i64 = 20;
/// The number of nearest skills whose texts are compared word by word.
const MAX_CANDIDATES: usize = 3;
/// The dimensions of the built-in embedding whose vectors are shared.
const SHARED_DIMS: usize = 256;
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The text of the judged skill with its vector.
struct EmbeddedText<'a> {
    text: &'a str,
    vector: Vec<f32>,
    /// The stored vectors that are comparable with this one.
    space: VectorSpace,
    model: &'a str,
}

pub async fn find(
    job_services: &Arc<JobServices>,
    request: &JudgeRequest<'_>,
) -> Result<Option<Neighbour>, JobError> {
    let (skill, rubric, org) = (request.job.skill, request.rubric, request.identity.org.id);
    let text = embedded_text(request.source);
    let mut embedded = None;
    if rubric.embed_provider != BUILTIN {
        match embed_with_provider(job_services, request, &text).await? {
            Ok(found) => embedded = Some(found),
            Err(reason) => {
                tracing::info!(
                    reason,
                    "the embedding provider failed; the built-in embedding is used instead"
                );
            }
        }
    }
    let embedded = match embedded {
        Some(embedded) => embedded,
        None => embed_builtin(job_services, org, rubric, &text).await?,
    };
    skills::delete_other_vectors(&job_services.services.db, org, &embedded.space).await?;
    // A copy of a skill on the shelf is compared with the others.
    let adopted = skills::find(&job_services.services.db, org, skill).await?.and_then(|skill| skill.adopted);
    nearest(job_services, org, (skill, adopted.map(|from| from.skill)), embedded).await
}

/// The space of the built-in embedding. With unusual dimensions it belongs to the organization, so that the number of
/// stored vectors stays bounded.
fn builtin_space(org: OrgId, dims: usize) -> VectorSpace {
    let embedder = format!("{BUILTIN}/{HASH_V1}/{dims}");
    if dims == SHARED_DIMS {
        VectorSpace { org: None, embedder, dims }
    } else {
        VectorSpace { org: Some(org), embedder: format!("{org} {embedder}"), dims }
    }
}

/// The space of an organization's provider. Another address is another space, whatever the provider is called.
fn provider_space(org: OrgId, target: &Target, rubric: &Rubric) -> VectorSpace {
    // Without a user name and password, which do not change the vectors.
    let address = target.base.as_ref().map_or_else(
        || target.name.clone(),
        |base| {
            let port = base.authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}{}", base.scheme, base.authority.host(), base.path)
        },
    );
    let dims = usize::try_from(rubric.embed_dims).unwrap_or(0);
    VectorSpace { org: Some(org), embedder: format!("{org} {address} {}/{dims}", rubric.embed_model), dims }
}

async fn embed_builtin<'a>(
    job_services: &JobServices,
    org: OrgId,
    rubric: &Rubric,
    text: &'a str,
) -> Result<EmbeddedText<'a>, JobError> {
    let is_chosen = rubric.embed_provider == BUILTIN;
    let dims =
        if is_chosen { usize::try_from(rubric.embed_dims).unwrap_or(SHARED_DIMS) } else { SHARED_DIMS };
    let Services { db, compute, .. } = &*job_services.services;
    let space = builtin_space(org, dims);
    let mut computed = 0;
    while computed < MAX_BUILTIN_VECTORS {
        let missing = skills::shelf_missing_vectors(db, &space, MISSING_PAGE).await?;
        if missing.is_empty() {
            break;
        }
        computed += missing.len();
        let embedding = compute.run(org, WaitLimits::JOB, move |cancellation| {
            let embed =
                |entry: UnembeddedSkill| (hash_v1(&shelf_text(&entry), dims), entry.skill, entry.version);
            let missing = missing.into_iter().take_while(|_| !cancellation.is_cancelled());
            missing.map(embed).collect::<Vec<_>>()
        });
        for (vector, skill, version) in embedding.await? {
            skills::insert_vector(db, &space, skill, version, &vector).await?;
        }
    }
    let judged = text.to_owned();
    let vector = compute.run(org, WaitLimits::JOB, move |_| hash_v1(&judged, dims)).await?;
    Ok(EmbeddedText { text, vector, space, model: HASH_V1 })
}

/// Embeds the text and missing shelf entries in one call. The inner error is the reason why the provider cannot be
/// used.
async fn embed_with_provider<'a>(
    job_services: &Arc<JobServices>,
    request: &'a JudgeRequest<'_>,
    text: &'a str,
) -> Result<Result<EmbeddedText<'a>, String>, JobError> {
    let (rubric, org, db) = (request.rubric, &request.identity.org, &job_services.services.db);
    let Some(target) = org.providers.find(&rubric.embed_provider) else {
        return Ok(Err(format!("there is no provider {}", rubric.embed_provider)));
    };
    let space = provider_space(org.id, target, rubric);
    let missing = skills::shelf_missing_vectors(db, &space, MAX_PROVIDER_VECTORS).await?;
    let inputs: Vec<String> =
        std::iter::once(text.to_owned()).chain(missing.iter().map(shelf_text)).collect();
    let count = inputs.len();
    let body = json!({"model": rubric.embed_model, "input": inputs, "dimensions": rubric.embed_dims});
    let metadata = json!({"embed": "skill", "skill_id": request.job.skill});
    let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    let embedding_request = InternalRequest {
        provider: rubric.embed_provider.clone(),
        endpoint: Endpoint::Embeddings,
        body: body.to_string(),
        source: LogSource::Api,
        prompt: None,
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
    let dims = space.dims;
    let parsing = move |_: &Cancellation| parse_vectors(&response.body, count, dims);
    let mut vectors = match job_services.services.compute.run(org.id, WaitLimits::JOB, parsing).await? {
        Ok(vectors) => vectors,
        Err(reason) => return Ok(Err(reason)),
    };
    let vector = vectors.remove(0);
    for (entry, entry_vector) in missing.iter().zip(&vectors) {
        skills::insert_vector(db, &space, entry.skill, entry.version, entry_vector).await?;
    }
    Ok(Ok(EmbeddedText { text, vector, space, model: &rubric.embed_model }))
}

/// Reads one vector per input, each with `dims` finite numbers.
#[expect(clippy::cast_possible_truncation, reason = "vectors are stored in single precision")]
fn parse_vectors(body: &[u8], inputs: usize, dims: usize) -> Result<Vec<Vec<f32>>, String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the response is no JSON: {error}"))?;
    let numbers = |entry: &Value| -> Option<Vec<f32>> {
        let list = entry["embedding"].as_array().filter(|list| list.len() == dims)?;
        list.iter().map(|number| Some(number.as_f64()? as f32).filter(|number| number.is_finite())).collect()
    };
    let vectors: Option<Vec<Vec<f32>>> = body["data"].as_array().into_iter().flatten().map(numbers).collect();
    let vectors = vectors.ok_or_else(|| format!("an embedding does not have {dims} numbers"))?;
    if vectors.len() != inputs {
        return Err("the provider's response does not have one embedding per input".to_owned());
    }
    Ok(vectors)
}

async fn nearest(
    job_services: &JobServices,
    org: OrgId,
    except: (SkillId, Option<SkillId>),
    embedded: EmbeddedText<'_>,
) -> Result<Option<Neighbour>, JobError> {
    let Services { db, compute, .. } = &*job_services.services;
    let mut best: Option<Neighbour> = None;
    let EmbeddedText { text, vector, space, model } = embedded;
    for (similarity, skill) in candidates(job_services, org, except, (vector, &space)).await? {
        let Some(found) = skills::find_on_shelf(db, skill).await? else {
            continue;
        };
        let (text, model) = (text.to_owned(), model.to_owned());
        let comparing = move |_: &Cancellation| {
            let other = embedded_text(&found.source);
            compare(&found.source.name, f64::from(similarity), &model, &text, &other)
        };
        let neighbour = compute.run(org, WaitLimits::JOB, comparing).await?;
        if best.as_ref().is_none_or(|best| best.closeness() < neighbour.closeness()) {
            best = Some(neighbour);
        }
    }
    Ok(best)
}

/// The nearest skills on the shelf, nearest first, except the judged one and the one that it was adopted from. Reads
/// the vectors in pages.
async fn candidates(
    job_services: &JobServices,
    org: OrgId,
    (except, source): (SkillId, Option<SkillId>),
    (vector, space): (Vec<f32>, &VectorSpace),
) -> Result<Vec<(f32, SkillId)>, JobError> {
    let Services { db, compute, .. } = &*job_services.services;
    let page = (PAGE_BYTES / (space.dims * size_of::<f32>()).max(1)).clamp(8, 500);
    let limit = i64::try_from(page).unwrap_or(8);
    let (mut ranked, mut compared, mut last) = (Vec::new(), 0, None);
    let vector = Arc::new(vector);
    while compared < MAX_SHELF_SKILLS {
        let mut found = skills::shelf_vectors(db, space, except, last.as_ref(), limit).await?;
        let (count, end) = (found.len(), found.pop());
        compared += count;
        let vector = Arc::clone(&vector);
        let ranking = move |_: &Cancellation| {
            let rank = |other: &SkillVector| (cosine(&vector, &other.numbers), other.skill);
            let mut ranked: Vec<(f32, SkillId)> = ranked;
            let others = found.iter().chain(&end).filter(|other| Some(other.skill) != source);
            ranked.extend(others.map(rank));
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            ranked.truncate(MAX_CANDIDATES);
            (ranked, end)
        };
        (ranked, last) = compute.run(org, WaitLimits::JOB, ranking).await?;
        if count < page {
            break;
        }
    }
    Ok(ranked)
}

/// The text to embed of a skill on the shelf. Its source was valid when it was published, so parsing rarely fails.
fn shelf_text(entry: &UnembeddedSkill) -> String {
    SkillSource::from_raw(&entry.raw_source)
        .map_or_else(|_| entry.raw_source.clone(), |source| embedded_text(&source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_vectors_of_finite_numbers_are_accepted() {
        let parse = |data: Value| parse_vectors(json!({"data": data}).to_string().as_bytes(), 2, 3);
        let vector = |numbers: Value| json!({"embedding": numbers});
        let good = vector(json!([1, 0.5, -2]));
        assert_eq!(parse(json!([good, good])), Ok(vec![vec![1.0, 0.5, -2.0]; 2]));
        for bad in [
            json!([1, 2]),
            json!([1, 2, 3, 4]),
            json!([1, 2, 1e39]),
            json!([1, 2, "3"]),
            json!("AAAA"),
            json!(null),
        ] {
            assert!(parse(json!([good, vector(bad.clone())])).is_err(), "{bad}");
        }
        assert!(parse(json!([good])).is_err() && parse(json!([good, good, good])).is_err());
        assert!(parse_vectors(b"no json", 2, 3).is_err());
    }

    #[test]
    fn vectors_are_shared_only_if_the_gateway_computes_them() {
        let (one, two) = (OrgId(uuid::Uuid::from_u128(1)), OrgId(uuid::Uuid::from_u128(2)));
        assert_eq!(builtin_space(one, 256), builtin_space(two, 256));
        assert_ne!(builtin_space(one, 257), builtin_space(two, 257));
        let rubric = Rubric::seeded((BUILTIN, "rubric-v1"), ("openai", "small"), 256);
        let operator = crate::targets::operator_providers(&std::collections::BTreeMap::new());
        let space = |org, name: &str| provider_space(org, &operator[name], &rubric);
        assert_ne!(space(one, "openai"), space(two, "openai"));
        assert_ne!(space(one, "openai"), space(one, "mistral"));
        assert_eq!(space(one, "openai").embedder, format!("{one} https://api.openai.com small/256"));
    }
}

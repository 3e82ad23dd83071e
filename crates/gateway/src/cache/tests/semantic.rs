//! Tests of semantic lookups.

use super::*;

fn query(rest: u64, text: &str) -> SemanticQuery {
    SemanticQuery::built_in(key(rest), text.into())
}

fn semantic_request(number: u128, of: u64) -> CacheRequest<'static> {
    CacheRequest { mode: CacheMode::Semantic, ..request(number, of) }
}

const CAPITAL: &str = "What is the capital of France?";

async fn filled() -> Arc<Cache> {
    let cache = cache();
    cache.lookup(semantic_request(1, 1)).await.miss().complete(response("Paris"), Some(&query(100, CAPITAL)));
    cache
}

#[tokio::test]
async fn a_similar_text_with_the_same_significant_words_hits() {
    let cache = filled().await;
    let similar = query(100, "what's the capital of france");
    let hit = cache.lookup(semantic_request(1, 2)).await.miss().find_similar(&similar, 0.95).hit();
    assert_eq!(hit.text(), "Paris");
    assert!(matches!(hit.kind, HitKind::Semantic { similarity } if similarity >= 0.95), "{:?}", hit.kind);
    let stats = cache.stats(org(1));
    assert_eq!((stats.hits, stats.misses, stats.semantic_hits, stats.entries), (1, 1, 1, 1));
}

#[tokio::test]
async fn a_similar_text_that_asks_something_else_misses() {
    let cache = filled().await;
    for text in [
        "What is the capital of Spain?",
        "What was the capital of France?",
        "What is not the capital of France?",
    ] {
        let fill = cache.lookup(semantic_request(1, 2)).await.miss();
        // Rejected although the vectors are similar enough.
        fill.find_similar(&query(100, text), 0.1).miss().fail();
    }
    let fill = cache.lookup(semantic_request(1, 2)).await.miss();
    fill.find_similar(&query(100, "Could you please tell me what the capital of France is?"), 0.999)
        .miss()
        .fail();
}

#[tokio::test]
async fn other_parameters_models_and_organizations_never_match() {
    let cache = filled().await;
    let same = || query(100, CAPITAL);
    let miss = async |request: CacheRequest<'_>, query: SemanticQuery| {
        cache.lookup(request).await.miss().find_similar(&query, 0.5).miss().fail();
    };
    miss(semantic_request(1, 2), query(101, CAPITAL)).await;
    miss(semantic_request(1, 2), SemanticQuery { model: "other".into(), ..same() }).await;
    miss(semantic_request(1, 2), SemanticQuery { vector: vec![1.0; 3], ..same() }).await;
    miss(semantic_request(2, 2), same()).await;
    cache.lookup(semantic_request(1, 2)).await.miss().find_similar(&same(), 0.95).hit();
}

#[tokio::test]
async fn the_index_loses_texts_with_their_entries_and_is_bounded() {
    let cache = filled().await;
    cache.purge(org(1), &PurgeScope::All);
    cache.lookup(semantic_request(1, 2)).await.miss().find_similar(&query(100, CAPITAL), 0.5).miss().fail();
    for number in 0..400 {
        let similar = query(100, &format!("what is the number {number}"));
        cache.lookup(semantic_request(1, number)).await.miss().complete(response("n"), Some(&similar));
    }
    let tenant = cache.existing_tenant(org(1)).unwrap();
    let group = query(100, "").group();
    assert_eq!(tenant.group(&group).len(), crate::cache::semantic::MAX_GROUP_TEXTS);
    let recent = query(100, "What is the number 399?");
    cache.lookup(semantic_request(1, 1_000)).await.miss().find_similar(&recent, 0.9).hit();
    cache.purge(org(1), &PurgeScope::All);
    assert!(tenant.group(&group).is_empty());
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn an_exact_request_never_waits_for_a_semantic_one() {
    let cache = filled().await;
    let fill = cache.lookup(semantic_request(1, 2)).await.miss();
    let exact = cache.lookup(request(1, 2)).await.miss();
    let (semantic_hit, waited) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            fill.find_similar(&query(100, CAPITAL), 0.95).hit()
        },
        cache.lookup(semantic_request(1, 2))
    );
    assert_eq!((semantic_hit.text(), waited.hit().text()), ("Paris", "Paris"));
    exact.complete(response("exact"), None);
    assert_eq!(cache.lookup(semantic_request(1, 2)).await.hit().text(), "exact");
}

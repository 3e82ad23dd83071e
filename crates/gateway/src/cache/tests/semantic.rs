//! Tests of answers to near requests.

use super::*;

fn probe(rest: u64, text: &str) -> Probe {
    Probe::built_in(key(rest), text.into())
}

fn near(number: u128, of: u64) -> Ask<'static> {
    Ask { mode: Mode::Semantic, ..ask(number, of) }
}

const CAPITAL: &str = "What is the capital of France?";

async fn filled() -> Arc<Cache> {
    let cache = cache();
    cache.look(near(1, 1)).await.led().complete(answer("Paris"), Some(&probe(100, CAPITAL)));
    cache
}

#[tokio::test]
async fn a_near_text_with_the_same_words_that_matter_hits() {
    let cache = filled().await;
    let asked = probe(100, "what's the capital of france");
    let hit = cache.look(near(1, 2)).await.led().similar(&asked, 0.95).hit();
    assert_eq!(hit.text(), "Paris");
    assert!(matches!(hit.how, How::Semantic { nearness } if nearness >= 0.95), "{:?}", hit.how);
    let stats = cache.stats(org(1));
    assert_eq!((stats.hits, stats.misses, stats.semantic_hits, stats.entries), (1, 1, 1, 1));
}

#[tokio::test]
async fn a_near_text_that_asks_something_else_misses() {
    let cache = filled().await;
    for text in [
        "What is the capital of Spain?",
        "What was the capital of France?",
        "What is not the capital of France?",
    ] {
        let lead = cache.look(near(1, 2)).await.led();
        // Even where the vectors would have let it pass.
        lead.similar(&probe(100, text), 0.1).led().failed();
    }
    let lead = cache.look(near(1, 2)).await.led();
    lead.similar(&probe(100, "Could you please tell me what the capital of France is?"), 0.999)
        .led()
        .failed();
}

#[tokio::test]
async fn other_parameters_models_and_organizations_are_never_near() {
    let cache = filled().await;
    let same = || probe(100, CAPITAL);
    let miss =
        async |ask: Ask<'_>, probe: Probe| cache.look(ask).await.led().similar(&probe, 0.5).led().failed();
    miss(near(1, 2), probe(101, CAPITAL)).await;
    miss(near(1, 2), Probe { model: "other".into(), ..same() }).await;
    miss(near(1, 2), Probe { vector: vec![1.0; 3], ..same() }).await;
    miss(near(2, 2), same()).await;
    cache.look(near(1, 2)).await.led().similar(&same(), 0.95).hit();
}

#[tokio::test]
async fn the_index_forgets_with_the_entries_and_is_bounded() {
    let cache = filled().await;
    cache.purge(org(1), PurgeScope::All).await;
    cache.look(near(1, 2)).await.led().similar(&probe(100, CAPITAL), 0.5).led().failed();
    for number in 0..400 {
        let asked = probe(100, &format!("what is the number {number}"));
        cache.look(near(1, number)).await.led().complete(answer("n"), Some(&asked));
    }
    let tenant = cache.known(org(1)).unwrap();
    let set = probe(100, "").set();
    assert_eq!(tenant.set(&set).len(), similar::MOST);
    let recent = probe(100, "What is the number 399?");
    cache.look(near(1, 1_000)).await.led().similar(&recent, 0.9).hit();
    cache.purge(org(1), PurgeScope::All).await;
    assert!(tenant.set(&set).is_empty());
    assert_eq!(cache.bytes(), 0);
}

#[tokio::test]
async fn who_wants_the_exact_answer_never_waits_for_a_near_one() {
    let cache = filled().await;
    let lead = cache.look(near(1, 2)).await.led();
    let exact = cache.look(ask(1, 2)).await.led();
    let (near_hit, followed) = tokio::join!(
        async {
            tokio::task::yield_now().await;
            lead.similar(&probe(100, CAPITAL), 0.95).hit()
        },
        cache.look(near(1, 2))
    );
    assert_eq!((near_hit.text(), followed.hit().text()), ("Paris", "Paris"));
    exact.complete(answer("exact"), None);
    assert_eq!(cache.look(near(1, 2)).await.hit().text(), "exact");
}

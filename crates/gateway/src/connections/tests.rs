//! Tests of the limits and of the choice of the connection that is closed.

use std::time::Duration;

use super::*;

const LIMIT: usize = 3;

fn connections(per_address: AddressLimit, trusted: &[&str]) -> Arc<Connections> {
    let limits = ConnectionLimits { total: LIMIT, per_address };
    Arc::new(Connections::new(limits, trusted.iter().map(|network| network.parse().unwrap()).collect()))
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn wait() {
    std::thread::sleep(Duration::from_millis(3));
}

fn is_asked_to_close(connection: &OpenConnection) -> bool {
    use futures_util::FutureExt as _;
    connection.state.close_requested().now_or_never().is_some()
}

#[test]
fn the_longest_idle_connection_makes_room() {
    let connections = connections(AddressLimit::Unlimited, &[]);
    let open = |from: &str| connections.admit(address(from));
    let busy = open("192.0.2.1").unwrap();
    let request = busy.state.begin_request(http::Version::HTTP_11);
    wait();
    let oldest = open("192.0.2.2").unwrap();
    wait();
    let younger = open("192.0.2.3").unwrap();
    wait();
    let fourth = open("192.0.2.4").unwrap();
    assert!(is_asked_to_close(&oldest));
    assert!(!is_asked_to_close(&busy) && !is_asked_to_close(&younger) && !is_asked_to_close(&fourth));
    // The chosen one is not chosen again.
    wait();
    let fifth = open("192.0.2.5").unwrap();
    assert!(is_asked_to_close(&younger));
    drop((oldest, younger));
    assert_eq!(connections.open(), 3);
    let requests = [&fourth, &fifth].map(|connection| connection.state.begin_request(http::Version::HTTP_11));
    assert_eq!(open("192.0.2.6").err(), Some(Refused::Total), "all are busy");
    drop(requests);
    drop(request);
    std::thread::sleep(Duration::from_millis(15));
    assert!(open("192.0.2.7").is_ok());
    let counters = &connections.counters;
    assert_eq!(counters.closed_for_room.load(Ordering::Relaxed), 3);
    assert_eq!(counters.refused_total.load(Ordering::Relaxed), 1);
}

#[test]
fn an_address_has_a_limit_of_its_own() {
    let connections = connections(AddressLimit::All(1), &["10.0.0.0/8"]);
    let first = connections.admit(address("192.0.2.1")).unwrap();
    for same in ["192.0.2.1", "::ffff:192.0.2.1"] {
        assert_eq!(connections.admit(address(same)).err(), Some(Refused::Address), "{same}");
    }
    let _other = connections.admit(address("2001:db8::1")).unwrap();
    assert_eq!(connections.admit(address("2001:db8::ffff:2")).err(), Some(Refused::Address));
    drop(first);
    let _first = connections.admit(address("192.0.2.1")).unwrap();
    let _proxies = [(); 2].map(|()| connections.admit(address("::ffff:10.0.0.1")).unwrap());
}

#[test]
fn local_clients_are_exempt_unless_the_limit_is_set() {
    let remote = connections(AddressLimit::Remote(1), &[]);
    let _local = [(); 2].map(|()| remote.admit(address("127.0.0.1")).unwrap());
    let all = connections(AddressLimit::All(1), &[]);
    let _local = all.admit(address("127.0.0.1")).unwrap();
    assert_eq!(all.admit(address("127.0.0.1")).err(), Some(Refused::Address));
}

//! Assignment of CPUs to the proxy under test, the upstream and the load generator, so that they do not disturb each
//! other.

use std::str::FromStr;

use crate::error::{BenchError, BenchResult};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinChoice {
    Auto,
    Off,
    Lists(Pins),
}

/// CPU lists in the format of `taskset -c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pins {
    pub(crate) proxy: String,
    pub(crate) upstream: String,
    pub(crate) client: String,
}

impl FromStr for PinChoice {
    type Err = BenchError;

    fn from_str(text: &str) -> BenchResult<Self> {
        let is_list = |part: &&str| parse_list(part).is_some_and(|cpus| !cpus.is_empty());
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match text.split(':').filter(is_list).collect::<Vec<_>>()[..] {
                [proxy, upstream, client] if text.split(':').count() == 3 => Ok(Self::Lists(Pins {
                    proxy: proxy.to_owned(),
                    upstream: upstream.to_owned(),
                    client: client.to_owned(),
                })),
                _ => Err(BenchError::new("expected auto, off or three CPU lists such as 0:1:2")),
            },
        }
    }
}

/// The proxy gets the first CPUs. Upstream and client share one only when there is no second.
pub(crate) fn assign_cpus(allowed: &[u32], workers: usize) -> Option<Pins> {
    let join = |cpus: &[u32]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let workers = workers.clamp(1, allowed.len().saturating_sub(1).max(1));
    let (proxy, rest) = allowed.split_at_checked(workers)?;
    let (upstream, client) = match rest {
        [] => return None,
        [only] => (only, only),
        [first, second, ..] => (first, second),
    };
    Some(Pins { proxy: join(proxy), upstream: upstream.to_string(), client: client.to_string() })
}

/// Parses a kernel CPU list such as `0-2,5`.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_keep_the_proxy_apart_from_the_rest() {
        let pins = assign_cpus(&[0, 1], 1).unwrap();
        assert_eq!((pins.proxy.as_str(), pins.upstream.as_str(), pins.client.as_str()), ("0", "1", "1"));
        assert_eq!(assign_cpus(&[0, 1], 4).unwrap().proxy, "0");
    }

    #[test]
    fn four_cpus_give_each_process_its_own() {
        let pins = assign_cpus(&[2, 3, 4, 5], 2).unwrap();
        assert_eq!((pins.proxy.as_str(), pins.upstream.as_str(), pins.client.as_str()), ("2,3", "4", "5"));
    }

    #[test]
    fn one_cpu_is_not_divided() {
        assert_eq!(assign_cpus(&[0], 1), None);
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("a"), None);
        assert!(PinChoice::from_str("0:1").is_err());
        assert!(PinChoice::from_str("0:x:1:2").is_err());
        assert!(matches!(PinChoice::from_str("0-1:2:3"), Ok(PinChoice::Lists(_))));
    }
}

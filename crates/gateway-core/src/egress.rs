//! Egress filter: the addresses that URLs supplied by tenants may reach. It is a pure function of the resolved address,
//! so that every range can be tested without a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses a request may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressRule {
    /// The operator chose the address.
    Any,
    /// A tenant chose the address, and the operator permits private ones. Metadata services of clouds stay blocked.
    Private,
    /// A tenant chose the address, and only public ones are permitted.
    Public,
}

impl EgressRule {
    pub fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Private => !is_metadata_service(address),
            Self::Public => is_public(address),
        }
    }
}

/// The addresses at which clouds give credentials to any process of the machine: AWS (also for containers), Azure,
/// Google, Oracle, Alibaba and Tencent.
const METADATA_V4: [Ipv4Addr; 7] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(100, 100, 100, 200),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Whether the address is on the public internet. All others (loopback, private, link-local, metadata services, shared,
/// multicast, reserved, documentation) need the operator's permission.
pub fn is_public(address: IpAddr) -> bool {
    if is_metadata_service(address) {
        return false;
    }
    match reached(address) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Whether the address is the metadata service of a large cloud.
pub fn is_metadata_service(address: IpAddr) -> bool {
    match reached(address) {
        IpAddr::V4(v4) => METADATA_V4.contains(&v4),
        IpAddr::V6(v6) => METADATA_V6.contains(&v6),
    }
}

/// The host that is really reached.
fn reached(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a == 0
        // Multicast, reserved and broadcast.
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19)))
}

/// Global unicast (2000::/3) without its reserved ranges.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    (a & 0xe000) == 0x2000 && !(a == 0x2001 && (b < 0x200 || b == 0xdb8)) && a != 0x3fff
}

/// The IPv4 address inside a mapped, compatible, 6to4 or NAT64 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x2002, high, low, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The IPv4 blocks of the IANA special-purpose registry, multicast and reserved space: first and last address.
    const SPECIAL_V4: [(&str, &str); 14] = [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "255.255.255.255"),
    ];

    fn is_special(address: Ipv4Addr) -> bool {
        // Azure's metadata service has an address of the public space.
        if address == Ipv4Addr::new(168, 63, 129, 16) {
            return true;
        }
        SPECIAL_V4.iter().any(|(first, last)| {
            (first.parse::<Ipv4Addr>().unwrap()..=last.parse().unwrap()).contains(&address)
        })
    }

    /// The address itself and every IPv6 form that reaches it.
    fn forms_of(v4: Ipv4Addr) -> [IpAddr; 5] {
        let [a, b, c, d] = v4.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        [
            v4.into(),
            v4.to_ipv6_mapped().into(),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low).into(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into(),
            Ipv6Addr::new(0x2002, high, low, 0, 1, 2, 3, 4).into(),
        ]
    }

    #[test]
    fn the_special_blocks_end_where_the_registry_says() {
        for (first, last) in SPECIAL_V4 {
            let [first, last] = [first, last].map(|text| u32::from(text.parse::<Ipv4Addr>().unwrap()));
            for number in [first.wrapping_sub(1), first, first / 2 + last / 2, last, last.wrapping_add(1)] {
                let address = Ipv4Addr::from(number);
                for form in forms_of(address) {
                    assert_eq!(is_public(form), !is_special(address), "{form}");
                }
            }
        }
    }

    #[test]
    fn of_ipv6_only_global_unicast_is_public() {
        for (address, expected) in [
            ("1fff:ffff::1", false),
            ("2000::", true),
            ("2001:1ff:ffff::1", false),
            ("2001:200::1", true),
            ("2001:db7:ffff::1", true),
            ("2001:db8:ffff::1", false),
            ("2001:db9::1", true),
            ("2003:db8::1", true),
            ("2606:100::1", true),
            ("3ffe:ffff::1", true),
            ("3fff::1", false),
            ("4000::1", false),
            ("64:ff9b:1::808:808", false),
            ("::1:0:808:808", false),
            ("::ffff:0:808:808", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn only_public_addresses_are_allowed() {
        for public in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn metadata_services_of_clouds_are_blocked_even_where_private_addresses_are_allowed() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "168.63.129.16",
            "192.0.0.192",
            "100.100.100.200",
        ] {
            for form in forms_of(text.parse().unwrap()) {
                assert!(!EgressRule::Private.allows(form) && !EgressRule::Public.allows(form), "{form}");
                assert!(EgressRule::Any.allows(form), "{form}");
            }
        }
        for text in ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"] {
            let address = text.parse().unwrap();
            assert!(!EgressRule::Private.allows(address) && !EgressRule::Public.allows(address), "{text}");
        }
        for text in ["127.0.0.1", "10.0.0.1", "169.254.169.253", "168.63.129.17", "::1", "fd00:ec2::255"] {
            assert!(EgressRule::Private.allows(text.parse().unwrap()), "{text}");
        }
        assert!(EgressRule::Public.allows("168.63.129.17".parse().unwrap()));
        assert!(!EgressRule::Public.allows("10.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn every_form_of_an_address_is_judged_alike(number in any::<u32>()) {
            let address = Ipv4Addr::from(number);
            for form in forms_of(address) {
                prop_assert_eq!(is_public(form), !is_special(address), "{}", form);
            }
        }
    }
}

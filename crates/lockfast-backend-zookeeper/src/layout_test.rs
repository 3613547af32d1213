use super::*;
use lockfast_core::ClientId;

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

#[test]
fn plain_names_stay_plain_and_all_are_found_again() {
    let table = [
        ("nightly-report", "/nightly-report"),
        ("a b.c", "/a b.c"),
        ("orders/nightly", "/orders%2Fnightly"),
        ("100%", "/100%25"),
        ("a%2Fb", "/a%252Fb"),
        ("zookeeper", "/%7Aookeeper"),
        ("zookeepers", "/zookeepers"),
        ("ä", "/ä"),
        ("\u{e000}", "/%EE%80%80"),
        ("🔒", "/%F0%9F%94%92"),
        ("...", "/..."),
    ];
    for (text, path) in table {
        assert_eq!(lock_path(&name(text)), path);
        assert_eq!(lock_name(&path[1..]), Some(name(text)));
    }
    for node in ["a%2fb", "%41", "%", "zookeeper", "a%00", ""] {
        assert_eq!(lock_name(node), None, "{node}");
    }
}

#[test]
fn claims_of_all_clients_are_known() {
    let permit = Mode::permit(4).unwrap();
    let table = [
        ("_c_8c3d5f6e-8e4b-4c8e-9f6d-0a1b2c3d4e5f-lock-0000000007", Mode::Exclusive, 7),
        ("_c_8c3d5f6e-8e4b-4c8e-9f6d-0a1b2c3d4e5f-__READ__0000000008", Mode::Shared, 8),
        ("_c_8c3d5f6e-8e4b-4c8e-9f6d-0a1b2c3d4e5f-__WRIT__0000000009", Mode::Exclusive, 9),
        ("3f2504e04f8911d39a0c0305e82c3301__lock__0000000010", Mode::Exclusive, 10),
        ("3f2504e04f8911d39a0c0305e82c3301__rlock__0000000011", Mode::Shared, 11),
        ("lock-0000000012", Mode::Exclusive, 12),
        ("_c_x-lock-2147483647", Mode::Exclusive, i32::MAX),
        ("_c_x-lock--2147483648", Mode::Exclusive, i32::MIN),
        ("_c_x-lock--000000005", Mode::Exclusive, -5),
        ("_c_x-permit-4-0000000013", permit, 13),
    ];
    for (node, mode, sequence) in table {
        let claim = Contender::read(node.to_owned()).unwrap();
        assert_eq!((claim.mode, claim.sequence), (mode, sequence), "{node}");
        assert!(!claim.is_ours());
    }
    for node in ["leases", "lock-1", "lock-x000000001", "a-permit-0-0000000001", "lock-9999999999"]
    {
        assert_eq!(Contender::read(node.to_owned()), None, "{node}");
        let error = Line::read(vec![node.to_owned()]).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignKey);
    }
}

#[test]
fn our_own_claims_are_known() {
    let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
    for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(12).unwrap()] {
        for exclusive in [Exclusive::Mutex, Exclusive::Writer] {
            for is_trying in [false, true] {
                let prefix = claim_prefix(-2, holder, mode, exclusive, is_trying);
                assert!(prefix.starts_with("_c_fffffffffffffffe-"), "{prefix}");
                let claim = Contender::read(format!("{prefix}0000000003")).unwrap();
                assert_eq!((claim.mode, claim.sequence), (mode, 3));
                assert!(claim.is_ours() && claim.is_of(holder));
                assert!(!claim.is_of(HolderId::from_bytes([0; 16])));
                assert_eq!(claim.is_trying(), is_trying, "{prefix}");
            }
        }
    }
}

/// B286
#[test]
fn who_only_tries_is_not_waiting() {
    let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
    let tries = [true, true, false, true, false];
    let nodes = tries.into_iter().zip(1..).map(|(is_trying, number)| {
        let mode = Mode::Exclusive;
        let prefix = claim_prefix(7, holder, mode, Exclusive::Mutex, is_trying);
        format!("{prefix}{number:010}")
    });
    let line = Line::read(nodes.collect());
    assert_eq!((line.holders(), line.waiting()), (1, 2));
    let others = line_of_others();
    assert_eq!((others.holders(), others.waiting()), (1, 3), "of other programs all do");
}

fn line_of_others() -> Line {
    let ids = ["_c_x-lock-", "_c_x-try-lock-", "__lock__", "lock-"];
    Line::read(ids.into_iter().zip(1..).map(|(id, at)| format!("{id}{at:010}")).collect())
}

/// A line of exclusive (`x`), shared (`s`) and permit (a digit) claims.
fn line(claims: &str) -> Line {
    let nodes = claims.chars().enumerate().map(|(at, claim)| match claim {
        'x' => format!("_c_x-lock-{at:010}"),
        's' => format!("_c_x-__READ__{at:010}"),
        limit => format!("_c_x-permit-{limit}-{at:010}"),
    });
    let mut nodes: Vec<String> = nodes.collect();
    nodes.reverse();
    Line::read(nodes)
}

#[test]
fn whom_each_claim_waits_for() {
    let table = [
        ("x", 0, None),
        ("xxx", 2, Some(1..2)),
        ("ssx", 2, Some(1..2)),
        ("ss", 1, None),
        ("ssxs", 3, Some(2..3)),
        ("222", 2, Some(0..2)),
        ("2x2", 2, Some(1..2)),
    ];
    for (claims, at, watched) in table {
        let expected = watched.map_or(Standing::Granted, |watch| Standing::Waits { watch });
        assert_eq!(line(claims).standing(at), expected, "{claims} at {at}");
    }
}

#[test]
fn how_many_have_it() {
    let table = [("", 0), ("x", 1), ("xx", 1), ("sss", 3), ("ssxs", 2), ("xs", 1), ("2222", 2)];
    for (claims, holders) in table {
        assert_eq!(line(claims).holders(), holders, "{claims}");
    }
}

#[test]
fn modes_that_do_not_go_together() {
    assert!(line("s2").check_use(1).is_err());
    assert!(line("23").check_use(1).is_err());
    assert!(line("2s").check_use(1).is_err());
    assert!(line("2x").check_use(1).is_ok());
    assert!(line("x2").check_use(1).is_ok());
    assert!(line("22").check_use(1).is_ok());
}

#[test]
fn numbers_that_tell_no_order() {
    let node = |number: i32| format!("_c_x-lock-{number:010}");
    for (number, expected) in [
        (0, false),
        (NUMBERS_END - 1, false),
        (NUMBERS_END, true),
        (i32::MAX, true),
        (i32::MIN, true),
        (-5, true),
    ] {
        assert_eq!(is_beyond_order(&node(number)), expected, "{number}");
    }
    // Those of other programs come after all of ours.
    let line = Line::read([-5, i32::MAX, 3, i32::MIN].map(node).to_vec());
    let order: Vec<i32> = line.claims.iter().map(|claim| claim.sequence).collect();
    assert_eq!(order, [3, i32::MAX, i32::MIN, -5]);
    for (at, claim) in line.claims.iter().enumerate() {
        assert_eq!(line.position(&claim.node), Some(at));
    }
}

#[test]
fn where_a_claim_stands() {
    let mut line = line("xsxx");
    let nodes: Vec<String> = line.claims.iter().map(|claim| claim.node.clone()).collect();
    for (at, node) in nodes.iter().enumerate() {
        assert_eq!(line.position(node), Some(at));
    }
    // Of the same number, but another's.
    for node in ["_c_y-lock-0000000002", "_c_x-lock-0000000009", "no-claim"] {
        assert_eq!(line.position(node), None, "{node}");
    }
    line.remove(&nodes[1]);
    assert_eq!((line.position(&nodes[1]), line.position(&nodes[3])), (None, Some(2)));
    line.remove("no-claim");
    line.insert(Contender::read(nodes[1].clone()).unwrap());
    assert_eq!(line.position(&nodes[1]), Some(1));
    assert_eq!(line.standing(2), Standing::Waits { watch: 1..2 });
    assert_eq!(Line::default().position(&nodes[0]), None);
}

#[test]
fn values_are_apart_from_locks() {
    for text in ["a", "a/b", "%values", "zookeeper", "é", "/"] {
        let name = LockName::new(text).unwrap();
        let path = value_path(&name);
        assert_eq!(value_name(&path), Some(name.clone()), "{path}");
        assert_eq!(path.matches('/').count(), 2, "{path}");
        assert_eq!(value_name(&lock_path(&name)), None, "{text}");
    }
    assert_eq!(lock_name(&VALUES[1..]), None);
    for path in [VALUES, "/%values/", "/%valuesa", "/%values/a/b", "/%values/a%2"] {
        assert_eq!(value_name(path), None, "{path}");
    }
}

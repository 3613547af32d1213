//! Two jobs under one lock never overlap.

use crate::sandbox::Sandbox;

/// Notes its start and its end, and notices anybody else inside by a directory that only one can
/// make.
const VISIT: &str = "mkdir inside || echo $$ >> overlaps
echo start $$ >> visits
sleep 0.01
echo end $$ >> visits
rmdir inside";

#[test]
fn fifty_processes_never_overlap() {
    let sandbox = Sandbox::new();
    let running: Vec<_> =
        (0..50).map(|_| sandbox.start(["run", "job", "--", "sh", "-c", VISIT])).collect();
    for one in running {
        one.finish().expect(0);
    }
    assert_eq!(sandbox.read("overlaps"), "");
    let visits = sandbox.read("visits");
    let lines: Vec<_> = visits.lines().collect();
    assert_eq!(lines.len(), 100);
    for pair in lines.chunks(2) {
        let id = pair[0].strip_prefix("start ").unwrap();
        assert_eq!(pair[1], format!("end {id}"));
    }
}

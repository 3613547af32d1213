//! The bill of materials, in the format CycloneDX 1.6: every package that is compiled into the command,
//! with its licence, its checksum and what it uses.

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use super::graph::{Component, Graph};
use crate::step::Step;

/// Writes it. There is no serial number: the same source makes the same bill.
pub(super) fn write(graph: &Graph, release: &Release) -> Result<Value> {
    let moment = format!("@{}", release.epoch);
    let date = Step::program("date", &["-u", "-d", &moment, "+%Y-%m-%dT%H:%M:%SZ"]).read()?;
    let libraries: Vec<Value> =
        graph.components[1..].iter().map(|library| entry(library, "library")).collect();
    let dependencies: Vec<Value> = graph
        .components
        .iter()
        .map(|component| {
            let uses: Vec<String> =
                component.uses.iter().map(|at| purl(&graph.components[*at])).collect();
            json!({ "ref": purl(component), "dependsOn": uses })
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": date.trim(),
            "tools": { "components": [{ "type": "application", "name": "cargo xtask dist" }] },
            "component": entry(graph.root(), "application"),
            "properties": [{ "name": "cargo:target", "value": release.target }],
        },
        "components": libraries,
        "dependencies": dependencies,
    }))
}

/// The name of a package that all tools understand.
fn purl(component: &Component) -> String {
    format!("pkg:cargo/{}@{}", component.name, component.version)
}

fn entry(component: &Component, kind: &str) -> Value {
    let purl = purl(component);
    let mut entry = json!({
        "type": kind,
        "bom-ref": purl,
        "name": component.name,
        "version": component.version,
        "licenses": [{ "expression": component.licence }],
        "purl": purl,
    });
    if let Some(checksum) = &component.checksum {
        entry["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::graph::sample;

    #[test]
    fn everything_that_is_referred_to_is_there_once() {
        let release =
            Release { version: "1.2.3".into(), target: "x86_64-a-linux-b".into(), epoch: 86_400 };
        let bill = write(&sample(std::path::Path::new("/nowhere")), &release).unwrap();
        assert_eq!(bill["metadata"]["timestamp"], "1970-01-02T00:00:00Z");
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/lockfast-cli@1.2.3");
        let serde = &bill["components"][1];
        assert_eq!(serde["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(serde["hashes"][0]["content"], "abc");
        let mut known: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["bom-ref"].as_str())
            .collect();
        known.push("pkg:cargo/lockfast-cli@1.2.3");
        let count = known.len();
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), count);
        for dependency in bill["dependencies"].as_array().unwrap() {
            assert!(known.contains(&dependency["ref"].as_str().unwrap()));
            for used in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(&used.as_str().unwrap()), "{used}");
            }
        }
    }
}

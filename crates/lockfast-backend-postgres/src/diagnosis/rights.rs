//! The schema, and who may do what with it. All of it stands in catalogs that everybody may read.

use lockfast_core::{ErrorKind, Finding};

use super::{Patient, only};
use crate::failure::Failure;
use crate::migration::{self, VERSION};
use crate::wire::get;

const MIGRATE: &str = "run \"lockfast migrate\" as a role that owns nothing else";
/// What every function that runs with its owner's rights is made with.
const SEARCH_PATH: &str = "search_path=pg_catalog, pg_temp";

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![judge_superuser(patient)];
    let (schema, is_there) = look_at_schema(patient).await?;
    findings.push(patient.settle("schema", Ok(schema))?);
    if is_there {
        findings.push(patient.settle("definer", look_at_definer(patient).await)?);
        findings.push(patient.settle("function-rights", look_at_functions(patient).await)?);
        findings.push(patient.settle("table-rights", look_at_tables(patient).await)?);
        findings.push(patient.settle("schema-rights", look_at_creators(patient).await)?);
    }
    Ok(findings)
}

fn judge_superuser(patient: &Patient) -> Finding {
    const CHECK: &str = "superuser";
    let (role, superusers) = (&patient.role, &patient.superusers);
    if !superusers.is_empty() {
        let fact = match superusers == role {
            true => format!("the role {role} is a superuser"),
            false => format!("the role {role} can become {superusers}, a superuser"),
        };
        return Finding::warn(
            CHECK,
            fact,
            "whoever gets hold of the URL can do anything on the server, locks are the least of it",
            "use a role with the rights that the store's page lists",
        );
    }
    Finding::ok(CHECK, format!("the role {role} is no superuser, and cannot become one"))
}

/// The schema's state, and whether there is one.
async fn look_at_schema(patient: &Patient) -> Result<(Finding, bool), Failure> {
    const CHECK: &str = "schema";
    let schema = &patient.config.schema;
    let is_there = {
        let found = patient.ask("SELECT FROM pg_namespace WHERE nspname = '{schema}'").await?;
        !found.is_empty()
    };
    let version = match migration::version(&patient.config, &patient.session).await {
        Ok(version) => version,
        Err(failure) if failure.kind() == ErrorKind::Permission => {
            let role = &patient.role;
            let finding = Finding::hazard(
                CHECK,
                format!("{role} may not use schema {schema}: {}", failure.message()),
                "this role can take no lock",
                format!(
                    "run GRANT USAGE ON SCHEMA {schema} TO {role} and GRANT EXECUTE ON ALL FUNCTIONS \
                     IN SCHEMA {schema} TO {role}"
                ),
            );
            return Ok((finding, is_there));
        }
        Err(failure) => return Err(failure),
    };
    match version {
        Some(version) => Ok((look_at_version(patient, version).await?, is_there)),
        None => Ok((look_at_absence(patient).await?, false)),
    }
}

async fn look_at_absence(patient: &Patient) -> Result<Finding, Failure> {
    const QUESTION: &str = "SELECT has_database_privilege(current_database(), 'CREATE')";
    let schema = &patient.config.schema;
    let rows = patient.ask(QUESTION).await?;
    let fact = format!("schema {schema} is missing or not complete in this database");
    if get(only(&rows)?, 0)? && !patient.is_standby {
        let meaning = "the first program that connects makes it, and its role then owns it";
        return Ok(Finding::warn("schema", fact, meaning, MIGRATE));
    }
    Ok(Finding::hazard("schema", fact, "no lock can be taken", MIGRATE))
}

async fn look_at_version(patient: &Patient, version: u32) -> Result<Finding, Failure> {
    const CHECK: &str = "schema";
    let schema = &patient.config.schema;
    let fact = format!("schema {schema} has version {version}, this program makes {VERSION}");
    match migration::check(&patient.config, &patient.session, version).await {
        Err(failure)
            if matches!(failure.kind(), ErrorKind::InvalidConfig | ErrorKind::Permission) =>
        {
            Ok(Finding::hazard(CHECK, fact, "no lock can be taken", failure.message()))
        }
        Err(failure) => Err(failure),
        Ok(()) if version < VERSION => {
            Ok(Finding::warn(CHECK, fact, "programs one version newer will refuse it", MIGRATE))
        }
        Ok(()) => Ok(Finding::ok(CHECK, fact)),
    }
}

/// With whose rights the functions run, and whether somebody could change what they mean.
async fn look_at_definer(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "definer";
    let question = format!(
        "SELECT coalesce(string_agg(DISTINCT r.rolname::text, ', '), ''), \
         count(DISTINCT r.oid), coalesce(bool_or(r.rolsuper), false), \
         coalesce(string_agg(DISTINCT p.proname::text, ', ') FILTER (WHERE p.prosecdef AND \
         NOT coalesce('{SEARCH_PATH}' = ANY (p.proconfig), false)), '') \
         FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner \
         WHERE p.pronamespace = '{{schema}}'::regnamespace"
    );
    let rows = patient.ask(&question).await?;
    let row = only(&rows)?;
    let (owners, count): (String, i64) = (get(row, 0)?, get(row, 1)?);
    let (is_superuser, open): (bool, String) = (get(row, 2)?, get(row, 3)?);
    let fact = format!("the functions run with the rights of {owners}");
    if !open.is_empty() {
        return Ok(Finding::hazard(
            CHECK,
            format!("{fact}, and {open} without the search_path that they were made with"),
            "whoever can create objects can change what these functions do, and grant or end leases",
            "run ALTER FUNCTION … SET search_path = pg_catalog, pg_temp for each of them",
        ));
    }
    if is_superuser {
        return Ok(Finding::warn(
            CHECK,
            format!("{fact}, a superuser"),
            "a fault in a function would give whoever may call it all rights on the server",
            "let a role that owns nothing else own schema, tables and functions: ALTER … OWNER TO",
        ));
    }
    if count > 1 {
        return Ok(Finding::warn(
            CHECK,
            fact,
            "each of these can change what the functions do",
            "let one role own them all: ALTER FUNCTION … OWNER TO",
        ));
    }
    Ok(Finding::ok(CHECK, fact))
}

async fn look_at_functions(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "function-rights";
    const QUESTION: &str = "SELECT count(*) FILTER (WHERE p.proacl IS NULL OR EXISTS (SELECT FROM \
        aclexplode(p.proacl) a WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE')), \
        count(*) FILTER (WHERE NOT has_function_privilege(p.oid, 'EXECUTE')), \
        has_schema_privilege('{schema}', 'USAGE') \
        FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace";
    let rows = patient.ask(QUESTION).await?;
    let row = only(&rows)?;
    let (open, closed, may_enter): (i64, i64, bool) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    let (schema, role) = (&patient.config.schema, &patient.role);
    if closed > 0 || !may_enter {
        return Ok(Finding::hazard(
            CHECK,
            format!("{role} may not call {closed} of the functions"),
            "this role can take no lock, or not give it back",
            format!(
                "run GRANT USAGE ON SCHEMA {schema} TO {role} and GRANT EXECUTE ON ALL FUNCTIONS IN \
                 SCHEMA {schema} TO {role}"
            ),
        ));
    }
    if open > 0 {
        return Ok(Finding::warn(
            CHECK,
            format!("every role may call {open} of the functions"),
            "whoever may enter the schema can take locks, and take them away from others",
            format!("run REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC"),
        ));
    }
    Ok(Finding::ok(
        CHECK,
        format!("only roles that were given it may call the functions, {role} too"),
    ))
}

async fn look_at_tables(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "table-rights";
    const QUESTION: &str = "SELECT coalesce(bool_or(a.grantee = 0), false), \
        coalesce(bool_or(a.grantee = 0 AND a.privilege_type <> 'SELECT'), false), \
        coalesce(string_agg(DISTINCT quote_ident(g.rolname), ', ') FILTER (WHERE g.rolname <> current_user), \
        ''), coalesce(bool_or(g.rolname = current_user), false) \
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a \
        LEFT JOIN pg_roles g ON g.oid = a.grantee \
        WHERE c.relnamespace = '{schema}'::regnamespace AND a.grantee <> c.relowner";
    let rows = patient.ask(QUESTION).await?;
    let row = only(&rows)?;
    let (is_open, is_writable): (bool, bool) = (get(row, 0)?, get(row, 1)?);
    let (others, is_ours): (String, bool) = (get(row, 2)?, get(row, 3)?);
    let schema = &patient.config.schema;
    let fix = |whom: &str| format!("run REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {whom}");
    if is_open {
        let fact = match is_writable {
            true => "every role may change the tables",
            false => "every role may read the tables",
        };
        let meaning = "whoever may enter the schema learns the ids of holders, and can end leases";
        return Ok(Finding::hazard(CHECK, fact, meaning, fix("PUBLIC")));
    }
    if !others.is_empty() {
        return Ok(Finding::warn(
            CHECK,
            format!("besides the owner, {others} may use the tables"),
            "these roles learn the ids of holders, and can end leases",
            fix(&others),
        ));
    }
    Ok(Finding::ok(
        CHECK,
        match is_ours {
            true => format!("only the owner and {} may use the tables", patient.role),
            false => "only the owner may use the tables".to_owned(),
        },
    ))
}

async fn look_at_creators(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "schema-rights";
    const QUESTION: &str = "SELECT o.rolname::text, (SELECT coalesce(string_agg(DISTINCT \
        coalesce(quote_ident(g.rolname), 'PUBLIC'), ', '), '') FROM aclexplode(n.nspacl) a LEFT JOIN \
        pg_roles g ON g.oid = a.grantee WHERE a.privilege_type = 'CREATE' AND a.grantee <> \
        n.nspowner), EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proowner <> \
        n.nspowner) FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner \
        WHERE n.nspname = '{schema}'";
    let rows = patient.ask(QUESTION).await?;
    let row = only(&rows)?;
    let (owner, creators): (String, String) = (get(row, 0)?, get(row, 1)?);
    let schema = &patient.config.schema;
    if !creators.is_empty() {
        return Ok(Finding::warn(
            CHECK,
            format!("besides its owner, {creators} may create objects in schema {schema}"),
            "these roles can put functions beside ours that other programs may call by mistake",
            format!("run REVOKE CREATE ON SCHEMA {schema} FROM {creators}"),
        ));
    }
    if get(row, 2)? {
        return Ok(Finding::warn(
            CHECK,
            format!("the schema belongs to {owner}, its functions do not"),
            "its owner can drop what it holds",
            format!("let one role own them all: ALTER SCHEMA {schema} OWNER TO"),
        ));
    }
    Ok(Finding::ok(CHECK, format!("only its owner {owner} may create objects in schema {schema}")))
}

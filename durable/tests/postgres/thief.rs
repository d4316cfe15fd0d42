//! A role that may create functions and operators in the schema of the tables, and call the
//! functions: it runs no code as another role.
//!
//! It plants what fits better than the built-in: for every function and operator that SQL of ours
//! uses, a copy and all variants with more exact types. Each writes down the role that runs it.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::store::{Namespace, Store};
use tickwheel_durable::{Postgres, builder};
use tokio_postgres::Client;

use super::plans::make_all_calls;
use super::server::{client, database, missing};

/// One overload, by which locks were chosen: it returns what the built-in does, so nothing else
/// shows it.
const PLANT_ONE: &str = r"
    SET search_path = pg_catalog;
    CREATE TABLE public.loot (taken_by text, through text);
    GRANT INSERT, SELECT ON public.loot TO PUBLIC;
    CREATE FUNCTION public.take(through text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        IF current_user::text NOT LIKE 'thief%' THEN INSERT INTO public.loot VALUES (current_user, through); END IF;
    END $$;
    CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS
        $$ SELECT public.take('hashtextextended'); SELECT pg_catalog.hashtextextended($1, $2::bigint) $$;
";

/// Makes many. What cannot be made is left out: there are some thousands of combinations.
const PLANT_MANY: &str = r#"
    SET search_path = pg_catalog;
    DO $plant$
    DECLARE
        f record;
        arguments text;
        body text;
        made int := 0;
    BEGIN
        FOR f IN
            WITH RECURSIVE kinds(general, exact) AS (VALUES
                ('bigint', 'integer'), ('integer', 'bigint'), ('text', 'character varying'), ('name', 'text'), ('"any"', 'bigint'),
                ('"any"', 'text'), ('regclass', 'text'), ('anyelement', 'bigint'), ('anyelement', 'text'), ('anyelement', 'bytea'),
                ('anyarray', 'bytea[]'), ('anyarray', 'bigint[]'), ('anyarray', 'text[]'), ('anyarray', 'boolean[]'),
                ('numeric', 'integer'), ('double precision', 'integer'), ('numeric', 'double precision')
            ), builtin AS (
                SELECT p.oid, p.proname, p.pronargs,
                    ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS u(t, n) ORDER BY n) AS types
                FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.pronargs BETWEEN 0 AND 3
                    AND p.provariadic = 0 AND p.proname IN (
                        'hashtextextended', 'encode', 'convert_to', 'convert_from', 'to_json', 'nextval', 'pg_notify', 'now',
                        'clock_timestamp', 'length', 'octet_length', 'unnest', 'cardinality', 'row_number', 'count', 'sum', 'max',
                        'min', 'bit_or', 'string_agg', 'lead', 'pg_advisory_xact_lock', 'pg_try_advisory_xact_lock',
                        'pg_advisory_xact_lock_shared', 'pg_sequence_last_value', 'pg_relation_size', 'current_setting',
                        'set_config', 'pg_backend_pid', 'to_regclass', 'quote_ident', 'current_schema', 'jsonb_typeof',
                        'jsonb_array_elements', 'pg_terminate_backend', 'string_to_array', 'pg_has_role', 'aclexplode',
                        'acldefault', 'replace', 'array_agg', 'generate_series', 'isfinite', 'pg_stat_get_activity', 'like')
            ), variant AS (
                SELECT proname, types, 0 AS place, pronargs FROM builtin
                UNION
                SELECT v.proname, v.types[:v.place] || coalesce(k.exact, v.types[v.place + 1]) || v.types[v.place + 2:], v.place + 1,
                    v.pronargs
                FROM variant v LEFT JOIN LATERAL (
                    SELECT exact FROM kinds WHERE general = v.types[v.place + 1] UNION ALL SELECT NULL
                ) k ON true
                WHERE v.place < v.pronargs
            )
            SELECT DISTINCT proname, types FROM variant WHERE place = pronargs
        LOOP
            arguments := array_to_string(f.types, ', ');
            body := format($b$SELECT public.take('%s(%s)'); SELECT NULL$b$, f.proname, arguments);
            BEGIN
                EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE sql VOLATILE AS %L', f.proname, arguments, CASE
                    WHEN f.proname LIKE 'hash%' THEN 'bigint'
                    WHEN f.proname IN ('encode', 'convert_from', 'current_setting', 'quote_ident') THEN 'text'
                    ELSE 'bigint'
                END, CASE
                    WHEN f.proname LIKE 'hash%' THEN body || '::bigint; SELECT 1::bigint'
                    WHEN f.proname = 'encode' THEN body || '::text; SELECT pg_catalog.encode($1, $2::text)'
                    WHEN f.proname IN ('convert_from', 'current_setting', 'quote_ident') THEN body || '::text'
                    ELSE body || '::bigint; SELECT 1::bigint'
                END);
                made := made + 1;
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
        FOR f IN
            SELECT o.name, l.kind AS l, r.kind AS r
            FROM unnest('{=,<>,<,>,<=,>=,+,-,*,/,||,#,&,>>,<<,~~}'::text[]) AS o(name),
                unnest('{integer,bigint,smallint,numeric,text,bytea,boolean,oid,regclass,timestamptz,interval,name,jsonb,double precision}'::text[]) AS l(kind),
                unnest('{integer,bigint,smallint,numeric,text,bytea,boolean,oid,regclass,timestamptz,interval,name,jsonb,double precision}'::text[]) AS r(kind)
        LOOP
            BEGIN
                EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE sql VOLATILE AS %L',
                    'op ' || f.name || f.l || f.r, f.l, f.r, CASE WHEN f.name IN ('=', '<>', '<', '>', '<=', '>=', '~~')
                        THEN 'boolean' ELSE 'bigint' END,
                    format($b$SELECT public.take('%s %s %s'); SELECT NULL::%s$b$, f.l, f.name, f.r,
                        CASE WHEN f.name IN ('=', '<>', '<', '>', '<=', '>=', '~~') THEN 'boolean' ELSE 'bigint' END));
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                    f.name, f.l, f.r, 'op ' || f.name || f.l || f.r);
                made := made + 1;
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
        IF made < 2000 THEN RAISE 'only % were made', made; END IF;
    END $plant$;
    CREATE FUNCTION public.tickwheel_write(text, bytea, text, timestamptz, varchar, OUT its_result text, OUT its_removed bytea)
        LANGUAGE plpgsql AS $$ BEGIN PERFORM public.take('tickwheel_write'); its_result := 'looted'; END $$;
    CREATE FUNCTION public.tickwheel_write(text, bytea, bytea, timestamptz, varchar, OUT its_result text, OUT its_removed bytea)
        LANGUAGE plpgsql AS $$ BEGIN PERFORM public.take('tickwheel_write'); its_result := 'looted'; END $$;
    CREATE FUNCTION public.tickwheel_compact(json) RETURNS text
        LANGUAGE sql AS $$ SELECT public.take('tickwheel_compact'); SELECT '1' $$;
"#;

/// What stands in the way of the tables and types in the session of a caller.
const PLANT_TEMPORARY: &str = r"
    CREATE TEMP TABLE tickwheel_timers (version bigint, key bytea);
    CREATE TEMP TABLE tickwheel_dead (version bigint);
    CREATE TEMP TABLE tickwheel_namespaces (id int, name text, codec text);
    CREATE TEMP TABLE tickwheel_instances (id bigint);
    CREATE TEMP SEQUENCE tickwheel_versions;
    CREATE DOMAIN pg_temp.bytea AS pg_catalog.text CHECK (public.take('bytea') IS NULL);
    CREATE DOMAIN pg_temp.timestamptz AS pg_catalog.text CHECK (public.take('timestamptz') IS NULL);
    CREATE DOMAIN pg_temp.regclass AS pg_catalog.text CHECK (public.take('regclass') IS NULL);
    CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (public.take('text') IS NULL);
    CREATE FUNCTION pg_temp.hashtextextended(pg_catalog.text, integer) RETURNS bigint
        LANGUAGE sql AS $$ SELECT public.take('temporary'); SELECT 1::bigint $$;
    CREATE FUNCTION pg_temp.tickwheel_write(pg_catalog.text, pg_catalog.bytea, pg_catalog.bytea, pg_catalog.timestamptz,
        pg_catalog.text) RETURNS record LANGUAGE sql AS $$ SELECT public.take('temporary'); SELECT 1, 2 $$;
";

/// What was taken, and by way of which functions and operators.
async fn loot(admin: &Client) -> Vec<String> {
    let sql = "SELECT DISTINCT taken_by || ' ' || through FROM public.loot ORDER BY 1";
    let rows = admin.query(sql, &[]).await.expect("it reads");
    rows.iter().map(|row| row.get(0)).collect()
}

/// A database with our tables, in the schema of which a role of the returned name has planted what
/// it could.
async fn planted(name: &str) -> Option<(String, String)> {
    let url = database(name).await?;
    let store = Postgres::connect(&url).await.expect("it connects");
    let space = Namespace::new("orders").expect("it is a name");
    store.open(&space, &"json".into()).await.expect("it opens");
    drop(store);
    let admin = client(&url).await;
    let thief = format!("thief_{}", url.rsplit_once('/').expect("it has a name").1);
    let role = format!(
        "CREATE ROLE {thief} LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO {thief};
        GRANT EXECUTE ON FUNCTION tickwheel_set(text, text, jsonb, timestamptz), tickwheel_set(text, jsonb, jsonb, timestamptz),
            tickwheel_set_if_absent(text, text, jsonb, timestamptz), tickwheel_move(text, text, timestamptz),
            tickwheel_remove(text, text) TO {thief}"
    );
    admin.batch_execute(&role).await.expect("it is made");
    plant(&url, &thief, PLANT_ONE).await;
    Some((url, thief))
}

async fn plant(url: &str, thief: &str, what: &str) {
    let as_thief = format!("SET SESSION AUTHORIZATION {thief}; {what}");
    let planted = client(url).await.batch_execute(&as_thief).await;
    planted.unwrap_or_else(|error| panic!("{error:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_may_call_no_function_that_changes_anything() {
    let Some(url) = database("of_public").await else {
        return missing();
    };
    Postgres::connect(&url).await.expect("it makes the tables");
    let admin = client(&url).await;
    let functions = async |which: &str| -> Vec<String> {
        let sql = format!(
            "SELECT oid::regprocedure::text FROM pg_proc
            WHERE proname LIKE 'tickwheel%' AND {which} ORDER BY 1"
        );
        let rows = admin.query(&sql, &[]).await.expect("it reads");
        rows.iter().map(|row| row.get(0)).collect()
    };
    let all = functions("true").await;
    // Each of the four that programs call takes keys of two types.
    assert_eq!(all.len(), 4 * 2 + 4, "{all:?}");
    // One sends a hint with the rights of its caller, as any role can.
    let of_public = "has_function_privilege('public', oid, 'EXECUTE')";
    let hint = ["tickwheel_hint(integer,text,bigint,bigint)"];
    assert_eq!(functions(of_public).await, hint);
    let as_owner = "prosecdef AND proname = 'tickwheel_hint'";
    assert_eq!(functions(as_owner).await, [""; 0]);
}

/// The owner of a schema may replace the functions in it, which run as the owner of the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_in_the_schema_of_another_role_are_refused() {
    let Some(url) = database("owned").await else {
        return missing();
    };
    let admin = client(&url).await;
    let thief = format!("thief_{}", url.rsplit_once('/').expect("it has a name").1);
    let schema = format!("CREATE ROLE {thief}; CREATE SCHEMA owned AUTHORIZATION {thief}");
    admin.batch_execute(&schema).await.expect("it is made");
    let owned = format!("{url}?options=-csearch_path%3Downed");
    let refused = async || {
        let error = Postgres::connect(&owned).await;
        format!("{:#}", error.expect_err("it is refused"))
    };
    let text = refused().await;
    assert!(text.contains("the owner of the schema owned"), "{text}");
    let give = "ALTER SCHEMA owned OWNER TO CURRENT_USER";
    admin.batch_execute(give).await.expect("it is given");
    Postgres::connect(&owned).await.expect("it connects");
    let back = format!("ALTER SCHEMA owned OWNER TO {thief}");
    admin.batch_execute(&back).await.expect("it is given back");
    let text = refused().await;
    assert!(text.contains(&format!("belongs to {thief}")), "{text}");
}

/// Also one with the schema before that of the built-in functions in its path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creator_of_functions_loots_no_instance() {
    let Some((url, thief)) = planted("thief_of_instances").await else {
        return missing();
    };
    let admin = client(&url).await;
    let built_in_last = format!("{url}?options=-csearch_path%3Dpublic,pg_catalog");
    make_calls(&url).await;
    assert_eq!(loot(&admin).await, [""; 0], "with one overload");
    plant(&url, &thief, PLANT_MANY).await;
    for url in [&url, &built_in_last] {
        make_calls(url).await;
        assert_eq!(loot(&admin).await, [""; 0], "{url}");
    }
}

/// Makes every call that a store has.
async fn make_calls(url: &str) {
    let store = Postgres::connect(url).await;
    let store = store.unwrap_or_else(|error| panic!("{error:#}"));
    let space = Namespace::new("calls").expect("it is a name");
    let opened = store.open(&space, &"json".into()).await.expect("it opens");
    make_all_calls(&store, &space, opened.instance).await;
    store.count(&space).await.expect("it counts");
    let inspect = store.inspect();
    inspect.namespaces().await.expect("it reads");
    inspect.instances(&space).await.expect("it reads");
    let times = vec![opened.now, opened.now.after(Duration::from_secs(1))];
    inspect.count_due(&space, times).await.expect("it counts");
    store.purge(&space).await.expect("it purges");
}

/// The arguments have their exact types, so that the caller's own overloads are not the ones that
/// it calls.
const CALLS: [(&str, &str); 6] = [
    (
        "tickwheel_set('orders'::pg_catalog.text, 'a'::pg_catalog.text, '1'::pg_catalog.jsonb, at)",
        "set",
    ),
    (
        "tickwheel_set('orders'::pg_catalog.text, '[1, \"b\"]'::pg_catalog.jsonb, '1'::pg_catalog.jsonb, at)",
        "set",
    ),
    (
        "tickwheel_set_if_absent('orders'::pg_catalog.text, 'a'::pg_catalog.text, '1'::pg_catalog.jsonb, at)",
        "present",
    ),
    (
        "tickwheel_move('orders'::pg_catalog.text, 'a'::pg_catalog.text, at)",
        "moved",
    ),
    (
        "tickwheel_remove('orders'::pg_catalog.text, 'a'::pg_catalog.text)",
        "(removed,1)",
    ),
    (
        "tickwheel_remove('orders'::pg_catalog.text, 'a'::pg_catalog.text)",
        "(absent,)",
    ),
];

async fn call_all(user: &Client, path: &str) {
    let path = format!("SET search_path = {path}");
    user.batch_execute(&path).await.expect("it may");
    for (call, says) in CALLS {
        let call = call.replace("at)", "'2100-01-01'::pg_catalog.timestamptz)");
        let call = format!("SELECT (public.{call})::pg_catalog.text");
        let row = user.query_one(&call, &[]).await;
        let row = row.unwrap_or_else(|error| panic!("{path}: {call}: {error:?}"));
        let answer: String = row.get(0);
        assert_eq!(answer.replace("replaced", "set"), says, "{path}: {call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_of_functions_loots_no_owner() {
    let Some((url, thief)) = planted("thief_of_owners").await else {
        return missing();
    };
    let (user, admin) = (client(&url).await, client(&url).await);
    let role = format!("SET SESSION AUTHORIZATION {thief}");
    user.batch_execute(&role).await.expect("it may");
    call_all(&user, "public").await;
    assert_eq!(loot(&admin).await, [""; 0], "with one overload");
    plant(&url, &thief, PLANT_MANY).await;
    call_all(&user, "public").await;
    call_all(&user, "public, pg_catalog").await;
    user.batch_execute(PLANT_TEMPORARY).await.expect("it may");
    call_all(&user, "pg_temp, public, pg_catalog").await;
    assert_eq!(loot(&admin).await, [""; 0]);
    // And instances know what was set.
    let store = Postgres::connect(&url).await.expect("it connects");
    let builder = builder::<(u64, String), u64>("orders");
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, _claims) = started.expect("it starts");
    let deadline = timers.deadline(&(1, "b".to_owned())).await;
    assert!(deadline.expect("it reads").is_some());
    assert_eq!(loot(&admin).await, [""; 0]);
}

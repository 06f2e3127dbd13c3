-- The roles of hosts: installed by a superuser, called by the owner of the database, who needs no right to make roles.
-- Each part can be repeated. Names are checked, so that no other role can be touched.
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'platform_host') THEN CREATE ROLE platform_host NOLOGIN; END IF;
END $$;
CREATE SCHEMA IF NOT EXISTS host_roles;
DO $$ BEGIN EXECUTE format('ALTER SCHEMA host_roles OWNER TO %I', current_user); END $$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
-- Nothing of the platform is a large object, and everybody may make some, of any size.
REVOKE EXECUTE ON FUNCTION lo_create(oid), lo_creat(integer), lo_from_bytea(oid, bytea), lowrite(integer, bytea),
  lo_put(oid, bigint, bytea), lo_open(oid, integer) FROM PUBLIC;

-- What the platform locks by a number of its own, no host may lock.
DO $$ DECLARE locking record; owner text; BEGIN
  SELECT pg_get_userbyid(datdba) INTO owner FROM pg_database WHERE datname = current_database();
  FOR locking IN SELECT oid::regprocedure AS name FROM pg_proc
                 WHERE pronamespace = 'pg_catalog'::regnamespace AND proname LIKE 'pg\_%advisory%' LOOP
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', locking.name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', locking.name, owner);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION host_roles.require_host(host text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- One call at a time: each changes the rights of the database, which is one row.
  PERFORM pg_advisory_xact_lock(7040113586320771904);
  IF host IS NULL OR host !~ '^host_[a-z2-7]{16}$' THEN
    RAISE EXCEPTION 'no name of a host' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = host AND (r.rolsuper OR r.rolcreaterole OR r.rolbypassrls
             OR NOT pg_has_role(r.oid, 'platform_host'::regrole, 'MEMBER'))) THEN
    RAISE EXCEPTION 'the role is no host''s' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION host_roles.make(host text, verifier text, connections integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM host_roles.require_host(host);
  IF verifier IS NULL OR verifier !~ '^SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+$' THEN
    RAISE EXCEPTION 'no verifier of a password' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF connections IS NULL OR connections NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'no number of connections' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = host) THEN
    EXECUTE format('CREATE ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT '
                   'IN ROLE platform_host', host);
  END IF;
  EXECUTE format('ALTER ROLE %I LOGIN PASSWORD %L CONNECTION LIMIT %s', host, verifier, connections);
  -- Whose host it is: a server may have the databases of several instances.
  EXECUTE format('COMMENT ON ROLE %I IS %L', host, current_database());
  -- Nor may a host make temporary tables, or connect to the database of another instance.
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), host);
  EXECUTE format('ALTER ROLE %I SET tcp_keepalives_idle = 30', host);
  EXECUTE format('ALTER ROLE %I SET tcp_keepalives_interval = 10', host);
  EXECUTE format('ALTER ROLE %I SET tcp_keepalives_count = 3', host);
  EXECUTE format('ALTER ROLE %I SET tcp_user_timeout = %L', host, '60s');
  EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = %L', host, '60s');
  EXECUTE format('ALTER ROLE %I SET statement_timeout = %L', host, '120s');
  -- A superuser's parameter, which the host cannot change: the disk of the database is not its own.
  EXECUTE format('ALTER ROLE %I SET temp_file_limit = %L', host, '256MB');
END $$;

-- No session can begin after the commit. The role itself is left alone: a session of the host may hold its row.
CREATE OR REPLACE FUNCTION host_roles.close(host text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = host) THEN RETURN false; END IF;
  PERFORM host_roles.require_host(host);
  EXECUTE format('REVOKE ALL ON DATABASE %I FROM %I', current_database(), host);
  PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = host;
  RETURN true;
END $$;

-- After `close`: sessions that began while it committed are ended too.
CREATE OR REPLACE FUNCTION host_roles.drop(host text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = host) THEN RETURN; END IF;
  PERFORM host_roles.require_host(host);
  PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = host;
  EXECUTE format('DROP OWNED BY %I', host);
  EXECUTE format('DROP ROLE %I', host);
END $$;

-- A right on a table lets its holder lock all of it, and rows are locked by who may change them. Returns how many ended.
CREATE OR REPLACE FUNCTION host_roles.end_blockers(seconds double precision) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(pg_terminate_backend(found.pid)) FROM (
    SELECT DISTINCT holder.pid FROM pg_stat_activity waiting
    CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocking(pid)
    JOIN pg_stat_activity holder ON holder.pid = blocking.pid AND holder.datname = current_database()
    WHERE waiting.wait_event_type = 'Lock' AND waiting.state_change < clock_timestamp() - make_interval(secs => seconds)
      AND holder.usename ~ '^host_[a-z2-7]{16}$' AND coalesce(waiting.usename, '') !~ '^host_[a-z2-7]{16}$'
  ) AS found
$$;

CREATE OR REPLACE FUNCTION host_roles.names() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT r.rolname::text FROM pg_roles r WHERE r.rolname ~ '^host_[a-z2-7]{16}$'
  AND pg_has_role(r.oid, 'platform_host'::regrole, 'MEMBER')
  AND shobj_description(r.oid, 'pg_authid') = current_database()
$$;

DO $$ DECLARE owner text; BEGIN
  SELECT pg_get_userbyid(datdba) INTO owner FROM pg_database WHERE datname = current_database();
  REVOKE ALL ON ALL FUNCTIONS IN SCHEMA host_roles FROM PUBLIC;
  EXECUTE format('GRANT USAGE ON SCHEMA host_roles TO %I', owner);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA host_roles TO %I', owner);
END $$;

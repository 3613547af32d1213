SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'
//
CREATE TABLE IF NOT EXISTS lockfast_store (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,
  serves INT NOT NULL DEFAULT 0,
  floor BIGINT NOT NULL,
  watched_us BIGINT NOT NULL,
  swept_us BIGINT NOT NULL,
  swept_name VARBINARY(255) NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockfast_clients (
  client BINARY(6) NOT NULL PRIMARY KEY,
  who BINARY(16) NOT NULL DEFAULT '',
  program VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  pid INT UNSIGNED NOT NULL,
  text VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  seen_us BIGINT NOT NULL,
  watches_us BIGINT NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockfast_locks (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  fence BIGINT NOT NULL,
  holder BINARY(16),
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  crowd INT NOT NULL,
  waiting INT NOT NULL DEFAULT 0,
  sharing INT NOT NULL DEFAULT 0,
  asleep INT NOT NULL DEFAULT 0,
  offered TINYINT NOT NULL DEFAULT 0,
  ticket BIGINT NOT NULL DEFAULT 0,
  served BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockfast_claims (
  name VARBINARY(255) NOT NULL,
  holder BINARY(16) NOT NULL,
  client BINARY(6) NOT NULL DEFAULT '',
  ticket BIGINT NOT NULL,
  mode INT NOT NULL,
  stage TINYINT NOT NULL,
  offered TINYINT NOT NULL DEFAULT 0,
  fence BIGINT NOT NULL,
  ttl_us BIGINT NOT NULL,
  delay_us BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  until_us BIGINT NOT NULL,
  since_us BIGINT NOT NULL,
  reason VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (name, holder),
  KEY lockfast_claims_turn (name, stage, ticket),
  KEY lockfast_claims_client (name, stage, client, ticket),
  KEY lockfast_claims_mode (name, mode),
  KEY lockfast_claims_end (name, until_us)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockfast_mail (
  client BINARY(6) NOT NULL,
  seq BIGINT NOT NULL AUTO_INCREMENT,
  reading_us BIGINT NOT NULL DEFAULT 0,
  sent_us BIGINT NOT NULL,
  body VARBINARY(4096) NOT NULL,
  PRIMARY KEY (client, seq),
  KEY lockfast_mail_seq (seq)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockfast_values (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  version BINARY(16) NOT NULL,
  bytes MEDIUMBLOB NOT NULL,
  until_us BIGINT,
  KEY lockfast_values_end (until_us)
) ENGINE = InnoDB
//
INSERT IGNORE INTO lockfast_store (id, version, floor, watched_us, swept_us, swept_name)
VALUES (1, 0, 0, 0, 0, '')
//
CREATE PROCEDURE lockfast_clock(OUT now_us BIGINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE zone VARCHAR(64) DEFAULT @@SESSION.time_zone;
  IF zone = '+00:00' THEN
    SET now_us = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
  ELSE
    SET SESSION time_zone = '+00:00';
    SET now_us = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
    SET SESSION time_zone = zone;
  END IF;
END
//
CREATE PROCEDURE lockfast_refuse()
  SQL SECURITY INVOKER
BEGIN
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
    'lockfast: no such request: see who asks, the name, the holder (it begins with its client), the mode and the times';
END
//
CREATE PROCEDURE lockfast_own(IN letter CHAR(1), IN caller CHAR(32))
  SQL SECURITY INVOKER
BEGIN
  DECLARE lock_name VARCHAR(64) CHARACTER SET utf8mb4
    DEFAULT CONCAT('lockfast:', letter, ':', caller);
  DECLARE earlier BIGINT DEFAULT IS_USED_LOCK(lock_name);
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  IF earlier IS NULL OR earlier <> CONNECTION_ID() THEN
    IF earlier IS NOT NULL THEN
      KILL CONNECTION earlier;
    END IF;
    DO GET_LOCK(lock_name, 2);
  END IF;
END
//
CREATE PROCEDURE lockfast_wake(IN whom CHAR(12))
  SQL SECURITY INVOKER
BEGIN
  DECLARE known CHAR(32) CHARACTER SET latin1;
  DECLARE listener BIGINT;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  DECLARE CONTINUE HANDLER FOR 1094 BEGIN END;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET @lockfast_deaf = 1;
  SELECT HEX(c.who) INTO known FROM lockfast_clients c WHERE c.client = UNHEX(whom);
  IF known IS NOT NULL THEN
    SET listener = IS_USED_LOCK(CONCAT('lockfast:l:', known));
  END IF;
  IF listener IS NOT NULL THEN
    KILL QUERY listener;
  END IF;
END
//
CREATE PROCEDURE lockfast_rouse(IN caller CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  SET @lockfast_deaf = 0;
  CALL lockfast_wake(LEFT(caller, 12));
  SELECT @lockfast_deaf, IS_USED_LOCK(CONCAT('lockfast:l:', caller)) IS NOT NULL;
END
//
CREATE PROCEDURE lockfast_listen(IN caller CHAR(32), IN was_read BIGINT, IN seconds INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE reading BIGINT DEFAULT was_read;
    DECLARE turns_left INT DEFAULT seconds;
    DECLARE mails LONGBLOB;
    DECLARE me BINARY(6) DEFAULT UNHEX(LEFT(caller, 12));
    IF NOT EXISTS (SELECT 1 FROM lockfast_clients c WHERE c.client = me AND c.who = UNHEX(caller))
       AND NOT EXISTS (SELECT 1 FROM lockfast_clients c
                        WHERE c.client = me AND c.who = UNHEX(caller)) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    IF @@SESSION.group_concat_max_len < 16777216 THEN
      SET SESSION group_concat_max_len = 16777216;
    END IF;
    CALL lockfast_own('l', caller);
    DELETE FROM lockfast_mail WHERE client = me AND reading_us BETWEEN 1 AND was_read;
    listening: LOOP
      UPDATE lockfast_mail SET reading_us = 0 WHERE client = me AND reading_us > reading;
      SET reading = GREATEST(reading + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
      UPDATE lockfast_mail SET reading_us = reading WHERE client = me AND reading_us = 0
       ORDER BY seq LIMIT 1000;
      SET mails = NULL;
      SELECT GROUP_CONCAT(m.body ORDER BY m.seq SEPARATOR '\n') INTO mails FROM lockfast_mail m
       WHERE m.client = me AND m.reading_us = reading;
      IF mails IS NOT NULL THEN
        SELECT mails, reading;
      ELSE
        SET reading = reading - 1;
      END IF;
      COMMIT AND NO CHAIN NO RELEASE;
      IF EXISTS (SELECT 1 FROM lockfast_mail m
                  WHERE m.client = me AND (m.reading_us = 0 OR m.reading_us > reading)) THEN
        ITERATE listening;
      ELSEIF turns_left <= 0 THEN
        LEAVE listening;
      END IF;
      COMMIT AND NO CHAIN NO RELEASE;
      SET turns_left = turns_left - 1;
      DO GET_LOCK(CONCAT('lockfast:w:', caller), 1);
      IF IS_USED_LOCK(CONCAT('lockfast:w:', caller)) <=> CONNECTION_ID() THEN
        DO RELEASE_LOCK(CONCAT('lockfast:w:', caller));
        LEAVE listening;
      END IF;
    END LOOP;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
//
CREATE PROCEDURE lockfast_begin(IN caller CHAR(32))
  SQL SECURITY INVOKER
BEGIN
  SET @lockfast_who = UNHEX(LEFT(caller, 12)), @lockfast_self = NULL, @lockfast_floor = NULL,
      @lockfast_answers = '', @lockfast_pushes = '', @lockfast_wakes = '', @lockfast_deaf = 0;
  IF @@GLOBAL.read_only THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
  END IF;
  IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
  IF @@SESSION.group_concat_max_len < 16777216 THEN
    SET SESSION group_concat_max_len = 16777216;
  END IF;
  CALL lockfast_clock(@lockfast_now);
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  START TRANSACTION;
  SELECT s.floor, s.watched_us > @lockfast_now INTO @lockfast_floor, @lockfast_watched
    FROM lockfast_store s
    JOIN lockfast_clients c ON c.client = @lockfast_who AND c.who = UNHEX(caller)
   WHERE s.id = 1;
  IF @lockfast_floor IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
  END IF;
END
//
CREATE PROCEDURE lockfast_end()
  SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN NO RELEASE;
  IF @lockfast_wakes <> '' THEN
    WHILE @lockfast_wakes <> '' DO
      CALL lockfast_wake(SUBSTRING(@lockfast_wakes, 2, 12));
      SET @lockfast_wakes = SUBSTRING(@lockfast_wakes, 14);
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
  END IF;
  SELECT @lockfast_now, @lockfast_answers, @lockfast_pushes, @lockfast_deaf;
END
//
CREATE PROCEDURE lockfast_tell(
  IN kind CHAR(1), IN lock_name VARBINARY(255), IN whose BINARY(6), IN its_fence BIGINT,
  IN lasts_us BIGINT)
  SQL SECURITY INVOKER
BEGIN
  INSERT INTO lockfast_mail (client, sent_us, body)
  SELECT c.client, @lockfast_now,
         CONCAT_WS('\t', 'E', @lockfast_now, kind, its_fence, HEX(whose), lasts_us, lock_name)
    FROM lockfast_clients c WHERE c.watches_us > @lockfast_now;
  SELECT CONCAT(@lockfast_wakes, COALESCE(GROUP_CONCAT(',', HEX(c.client) SEPARATOR ''), ''))
    INTO @lockfast_wakes
    FROM lockfast_clients c
   WHERE c.watches_us > @lockfast_now AND LOCATE(CONCAT(',', HEX(c.client)), @lockfast_wakes) = 0;
END
//
CREATE PROCEDURE lockfast_push(
  IN whom BINARY(6), IN body VARBINARY(4096), IN is_urgent TINYINT)
  SQL SECURITY INVOKER
BEGIN
  IF whom = @lockfast_who THEN
    SET @lockfast_pushes = CONCAT(@lockfast_pushes, body, '\n');
  ELSE
    INSERT INTO lockfast_mail (client, sent_us, body) VALUES (whom, @lockfast_now, body);
    IF is_urgent AND LOCATE(CONCAT(',', HEX(whom)), @lockfast_wakes) = 0 THEN
      SET @lockfast_wakes = CONCAT(@lockfast_wakes, ',', HEX(whom));
    END IF;
  END IF;
END
//
CREATE PROCEDURE lockfast_find(IN whom BINARY(6), OUT is_there TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE known CHAR(32) CHARACTER SET latin1;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF whom = @lockfast_who THEN
    SET is_there = 1;
  ELSE
    SELECT HEX(c.who) INTO known FROM lockfast_clients c WHERE c.client = whom;
    SET is_there = known IS NOT NULL AND IS_USED_LOCK(CONCAT('lockfast:a:', known)) IS NOT NULL;
  END IF;
END
//
CREATE PROCEDURE lockfast_pass_over(IN lock_name VARBINARY(255), IN hung BINARY(6))
  SQL SECURITY INVOKER
BEGIN
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  IF @lockfast_waiting > @lockfast_asleep THEN
    UPDATE lockfast_claims FORCE INDEX (lockfast_claims_client)
       SET stage = 3, until_us = now_us + 60000000
     WHERE name = lock_name AND stage = 0 AND client = hung AND until_us > now_us;
    SET @lockfast_asleep = @lockfast_asleep + ROW_COUNT();
  END IF;
END
//
CREATE PROCEDURE lockfast_pass_over_sharers(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  DECLARE hung BINARY(6);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE clients CURSOR FOR
    SELECT DISTINCT c.client FROM lockfast_claims c
     WHERE c.name = lock_name AND c.until_us <= now_us AND c.stage = 1 AND c.offered;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  OPEN clients;
  FETCH clients INTO hung;
  WHILE NOT is_over DO
    CALL lockfast_pass_over(lock_name, hung);
    FETCH clients INTO hung;
  END WHILE;
  CLOSE clients;
END
//
CREATE PROCEDURE lockfast_awaken(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  DECLARE awake INT;
  DECLARE heard BINARY(6) DEFAULT @lockfast_who;
  DECLARE its_end BIGINT DEFAULT @lockfast_now + 3600000000;
  UPDATE lockfast_claims FORCE INDEX (lockfast_claims_client) SET stage = 0, until_us = its_end
   WHERE name = lock_name AND stage = 3 AND client = heard;
  SET awake = ROW_COUNT();
  IF awake > 0 THEN
    SET @lockfast_asleep = @lockfast_asleep - awake, @lockfast_served = 0;
  END IF;
END
//
CREATE PROCEDURE lockfast_open(IN lock_name VARBINARY(255), IN asker BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE hung BINARY(6);
  DECLARE ended INT DEFAULT 0;
  DECLARE ended_waiting, ended_sharing, ended_asleep, ended_offers INT;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  SET @lockfast_fence = NULL;
  opening: LOOP
    SELECT l.fence, LEFT(l.holder, 6), l.holder IS NOT NULL AND l.holder <=> asker, l.until_us,
           l.since_us, l.offered, l.crowd, l.waiting, l.sharing, l.asleep, l.ticket, l.served
      INTO @lockfast_fence, @lockfast_client, @lockfast_is_asker, @lockfast_until,
           @lockfast_since, @lockfast_offered, @lockfast_crowd, @lockfast_waiting,
           @lockfast_sharing, @lockfast_asleep, @lockfast_ticket, @lockfast_served
      FROM lockfast_locks l WHERE l.name = lock_name FOR UPDATE;
    IF @lockfast_fence IS NOT NULL THEN
      LEAVE opening;
    END IF;
    SELECT s.floor INTO @lockfast_floor FROM lockfast_store s WHERE s.id = 1;
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name, @lockfast_floor, NULL, now_us, 0, 0)
    ON DUPLICATE KEY UPDATE name = lock_name;
  END LOOP;
  IF @lockfast_until <= now_us AND @lockfast_client IS NOT NULL THEN
    SET hung = @lockfast_client, @lockfast_client = NULL, @lockfast_is_asker = 0;
    IF @lockfast_offered THEN
      CALL lockfast_pass_over(lock_name, hung);
    END IF;
    SET @lockfast_offered = 0;
  END IF;
  IF @lockfast_crowd > 0 THEN
    SELECT COUNT(*) INTO ended FROM lockfast_claims c FORCE INDEX (lockfast_claims_end)
     WHERE c.name = lock_name AND c.until_us <= now_us;
  END IF;
  IF ended > 0 THEN
    SELECT COUNT(*), COALESCE(SUM(c.stage IN (0, 3)), 0), COALESCE(SUM(c.stage = 1), 0),
           COALESCE(SUM(c.stage = 3), 0), COALESCE(SUM(c.stage = 1 AND c.offered), 0)
      INTO ended, ended_waiting, ended_sharing, ended_asleep, ended_offers
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_end)
     WHERE c.name = lock_name AND c.until_us <= now_us FOR UPDATE;
    IF ended_offers > 0 THEN
      CALL lockfast_pass_over_sharers(lock_name);
    END IF;
    DELETE FROM lockfast_claims WHERE name = lock_name AND until_us <= now_us;
    SET @lockfast_crowd = @lockfast_crowd - ended,
        @lockfast_waiting = @lockfast_waiting - ended_waiting,
        @lockfast_sharing = @lockfast_sharing - ended_sharing,
        @lockfast_asleep = @lockfast_asleep - ended_asleep;
  END IF;
END
//
CREATE PROCEDURE lockfast_close(IN lock_name VARBINARY(255), IN heir BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  UPDATE lockfast_locks l
     SET l.fence = @lockfast_fence,
         l.holder = IF(@lockfast_client IS NULL, NULL, COALESCE(heir, l.holder)),
         l.until_us = @lockfast_until, l.since_us = @lockfast_since, l.offered = @lockfast_offered,
         l.crowd = @lockfast_crowd, l.waiting = @lockfast_waiting, l.sharing = @lockfast_sharing,
         l.asleep = @lockfast_asleep, l.ticket = @lockfast_ticket, l.served = @lockfast_served
   WHERE l.name = lock_name;
  IF ROW_COUNT() <> 1 AND NOT EXISTS (
       SELECT 1 FROM lockfast_locks l
        WHERE l.name = lock_name AND l.fence = @lockfast_fence
          AND LEFT(l.holder, 6) <=> @lockfast_client AND (heir IS NULL OR l.holder = heir)
          AND l.until_us = @lockfast_until AND l.since_us = @lockfast_since
          AND l.offered = @lockfast_offered AND l.crowd = @lockfast_crowd
          AND l.waiting = @lockfast_waiting AND l.sharing = @lockfast_sharing
          AND l.asleep = @lockfast_asleep AND l.ticket = @lockfast_ticket
          AND l.served = @lockfast_served) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
  END IF;
END
//
CREATE PROCEDURE lockfast_measure(IN lock_name VARBINARY(255), IN its_mode INT)
  SQL SECURITY INVOKER
BEGIN
  IF @lockfast_client IS NOT NULL THEN
    SET @lockfast_blocked = @lockfast_until - @lockfast_now;
  ELSE
    SELECT COALESCE(IF(its_mode = 0, MAX(c.until_us), MIN(c.until_us)) - @lockfast_now, 0)
      INTO @lockfast_blocked
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 1;
  END IF;
END
//
CREATE PROCEDURE lockfast_lead(
  IN lock_name VARBINARY(255), IN except_client BINARY(6), IN is_urgent TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE leader BINARY(16);
  DECLARE its_mode INT;
  DECLARE is_there TINYINT DEFAULT 0;
  DECLARE is_second_half TINYINT DEFAULT 0;
  DECLARE tries_left INT DEFAULT 4;
  DECLARE after_client BINARY(6) DEFAULT except_client;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  looking: WHILE NOT is_there AND tries_left > 0 AND @lockfast_waiting > @lockfast_asleep DO
    SET leader = NULL, tries_left = tries_left - 1;
    SELECT c.holder, c.mode INTO leader, its_mode
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_client)
     WHERE c.name = lock_name AND c.stage = 0 AND c.client > after_client
     ORDER BY c.client, c.ticket LIMIT 1;
    IF leader IS NOT NULL THEN
      SET after_client = LEFT(leader, 6);
    ELSEIF is_second_half THEN
      LEAVE looking;
    ELSE
      SET is_second_half = 1, after_client = '';
      ITERATE looking;
    END IF;
    IF is_second_half AND after_client >= except_client THEN
      SET leader = NULL;
      LEAVE looking;
    END IF;
    CALL lockfast_find(after_client, is_there);
  END WHILE;
  IF is_there THEN
    CALL lockfast_measure(lock_name, its_mode);
    CALL lockfast_push(after_client,
      CONCAT_WS('\t', 'H', HEX(leader), @lockfast_now, @lockfast_blocked), is_urgent);
  END IF;
END
//
CREATE PROCEDURE lockfast_seen(IN lock_name VARBINARY(255))
  SQL SECURITY INVOKER
BEGIN
  SET @lockfast_seen = CAST(@lockfast_waiting AS CHAR);
  IF @lockfast_sharing > 0 THEN
    SELECT CONCAT_WS(';', @lockfast_waiting, GROUP_CONCAT(CONCAT_WS('.', c.mode, c.fence, c.since_us,
               c.until_us - @lockfast_now, HEX(c.client)) ORDER BY c.ticket SEPARATOR ';'))
      INTO @lockfast_seen
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 1;
  END IF;
  IF @lockfast_client IS NOT NULL THEN
    SET @lockfast_seen = CONCAT_WS(';', @lockfast_seen, CONCAT_WS('.', 0, @lockfast_fence,
      @lockfast_since, @lockfast_until - @lockfast_now, HEX(@lockfast_client)));
  END IF;
END
//
CREATE PROCEDURE lockfast_settle(IN lock_name VARBINARY(255), INOUT heir BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE id BINARY(16);
  DECLARE its_mode INT;
  DECLARE its_ticket, its_ttl, its_delay, its_floor, lasts, next_fence BIGINT;
  DECLARE served_last BIGINT DEFAULT @lockfast_served;
  DECLARE its_client, granted_to BINARY(6);
  DECLARE is_there, has_moved TINYINT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  line: WHILE @lockfast_client IS NULL AND @lockfast_waiting > @lockfast_asleep DO
    SET id = NULL;
    SELECT c.holder, c.ticket, c.mode, c.ttl_us, c.delay_us, c.floor
      INTO id, its_ticket, its_mode, its_ttl, its_delay, its_floor
      FROM lockfast_claims c FORCE INDEX (lockfast_claims_turn)
     WHERE c.name = lock_name AND c.stage = 0 AND c.ticket > served_last
     ORDER BY c.ticket LIMIT 1;
    IF id IS NULL OR (its_mode = 0 AND @lockfast_sharing > 0)
       OR (its_mode > 0 AND @lockfast_sharing >= its_mode) THEN
      LEAVE line;
    END IF;
    SET its_client = LEFT(id, 6);
    CALL lockfast_find(its_client, is_there);
    IF NOT is_there THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1, @lockfast_waiting = @lockfast_waiting - 1;
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, its_client, NULL, 0);
      END IF;
      ITERATE line;
    END IF;
    SET next_fence =
      GREATEST(@lockfast_fence + 1, @lockfast_floor + 1, its_floor + 1, @lockfast_now);
    IF next_fence >= 9007199254740992 THEN
      LEAVE line;
    END IF;
    SET @lockfast_fence = next_fence, @lockfast_waiting = @lockfast_waiting - 1,
        @lockfast_served = its_ticket, served_last = its_ticket,
        lasts = IF(id <=> @lockfast_self, its_ttl, LEAST(its_ttl, 1500000));
    IF its_mode = 0 THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET heir = id, @lockfast_crowd = @lockfast_crowd - 1, @lockfast_client = its_client,
          @lockfast_is_asker = id <=> @lockfast_self, @lockfast_offered = NOT id <=> @lockfast_self,
          @lockfast_since = @lockfast_now, @lockfast_until = @lockfast_now + lasts + its_delay;
    ELSE
      UPDATE lockfast_claims c
         SET c.stage = 1, c.fence = next_fence, c.since_us = @lockfast_now,
             c.until_us = @lockfast_now + lasts + its_delay, c.offered = NOT id <=> @lockfast_self
       WHERE c.name = lock_name AND c.holder = id;
      SET @lockfast_sharing = @lockfast_sharing + 1;
    END IF;
    IF NOT id <=> @lockfast_self THEN
      SET granted_to = its_client, has_moved = 1;
      CALL lockfast_push(its_client, CONCAT_WS('\t',
        'G', HEX(id), next_fence, @lockfast_now, lasts, lock_name), 1);
    END IF;
    IF @lockfast_watched THEN
      CALL lockfast_tell('g', lock_name, its_client, next_fence, lasts + its_delay);
    END IF;
  END WHILE;
  IF has_moved THEN
    CALL lockfast_lead(lock_name, granted_to, lasts < 1500000);
  END IF;
END
//
CREATE PROCEDURE lockfast_queue(
  IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, IN is_known TINYINT, IN may_wait TINYINT,
  INOUT heir BINARY(16), OUT answer LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY INVOKER
BEGIN
  DECLARE its_stage INT;
  DECLARE its_fence BIGINT;
  DECLARE its_end BIGINT DEFAULT @lockfast_now + 3600000000;
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF is_known THEN
    IF may_wait THEN
      SET @lockfast_self = NULL;
    END IF;
    UPDATE lockfast_claims
       SET ttl_us = its_ttl, delay_us = its_delay, floor = its_floor, until_us = its_end
     WHERE name = lock_name AND holder = id;
  ELSE
    SET @lockfast_ticket = @lockfast_ticket + 1, @lockfast_crowd = @lockfast_crowd + 1,
        @lockfast_waiting = @lockfast_waiting + 1;
    INSERT INTO lockfast_claims (name, holder, client, ticket, mode, stage, fence, ttl_us, delay_us,
                                 floor, until_us, since_us, reason)
    VALUES (lock_name, id, LEFT(id, 6), @lockfast_ticket, its_mode, 0, 0, its_ttl, its_delay,
            its_floor, its_end, @lockfast_now, '');
  END IF;
  CALL lockfast_settle(lock_name, heir);
  IF @lockfast_is_asker THEN
    SET its_stage = 1, its_fence = @lockfast_fence;
  ELSEIF its_mode <> 0 THEN
    SELECT c.stage, c.fence INTO its_stage, its_fence
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
  END IF;
  IF its_stage = 1 AND @lockfast_self IS NOT NULL THEN
    SET answer = CONCAT('G\t', its_fence);
  ELSEIF may_wait THEN
    IF @lockfast_watched AND NOT is_known THEN
      CALL lockfast_tell('q', lock_name, LEFT(id, 6), NULL, 0);
    END IF;
    CALL lockfast_measure(lock_name, its_mode);
    SET answer = CONCAT('W\t', @lockfast_blocked);
  ELSE
    DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
    SET @lockfast_crowd = @lockfast_crowd - 1, @lockfast_waiting = @lockfast_waiting - 1;
    IF is_known THEN
      IF @lockfast_watched THEN
        CALL lockfast_tell('a', lock_name, LEFT(id, 6), NULL, 0);
      END IF;
      CALL lockfast_settle(lock_name, heir);
    END IF;
    CALL lockfast_seen(lock_name);
    SET answer = CONCAT('T\t', @lockfast_seen);
  END IF;
END
//
CREATE PROCEDURE lockfast_enter(
  IN at INT, IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, IN may_wait TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE known_stage, known_mode, other_mode INT;
  DECLARE known_fence, lasts BIGINT;
  DECLARE is_offer TINYINT DEFAULT 0;
  DECLARE known_reason VARCHAR(1024) CHARACTER SET utf8mb4;
  DECLARE answer LONGTEXT CHARACTER SET utf8mb4;
  DECLARE heir BINARY(16);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  IF NOT COALESCE(
       LENGTH(id) = 16 AND LEFT(id, 6) = @lockfast_who AND LENGTH(lock_name) > 0
       AND its_mode >= -1 AND its_ttl BETWEEN 1 AND 31622400000000
       AND its_delay BETWEEN 0 AND 31622400000000 AND its_floor >= 0 AND may_wait IN (0, 1), 0) THEN
    CALL lockfast_refuse();
  END IF;
  CALL lockfast_open(lock_name, id);
  SET @lockfast_self = id;
  IF @lockfast_asleep > 0 THEN
    CALL lockfast_awaken(lock_name);
  END IF;
  IF @lockfast_crowd > 0 THEN
    SELECT c.stage, c.mode, c.fence, c.reason, c.offered
      INTO known_stage, known_mode, known_fence, known_reason, is_offer
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
    IF known_stage IS NULL AND its_mode <> 0 THEN
      SELECT c.mode INTO other_mode FROM lockfast_claims c FORCE INDEX (lockfast_claims_mode)
       WHERE c.name = lock_name AND c.mode <> 0 AND c.mode <> its_mode AND c.stage <> 2 LIMIT 1;
    END IF;
  END IF;
  IF @lockfast_is_asker THEN
    SET known_stage = 1, known_mode = 0, known_fence = @lockfast_fence,
        is_offer = @lockfast_offered;
  END IF;
  IF known_stage = 2 THEN
    SET answer = CONCAT('R\t', known_reason);
  ELSEIF known_mode <> its_mode THEN
    SET answer = CONCAT('H\t', known_mode);
  ELSEIF known_stage = 1 AND is_offer AND may_wait THEN
    SET lasts = LEAST(its_ttl, 1500000), answer = CONCAT('W\t', lasts + its_delay);
    CALL lockfast_push(@lockfast_who, CONCAT_WS('\t',
      'G', HEX(id), known_fence, @lockfast_now, lasts, lock_name), 0);
    IF its_mode = 0 THEN
      SET @lockfast_until = @lockfast_now + lasts + its_delay;
    ELSE
      UPDATE lockfast_claims SET until_us = @lockfast_now + lasts + its_delay
       WHERE name = lock_name AND holder = id;
    END IF;
  ELSEIF known_stage = 1 THEN
    SET answer = CONCAT('G\t', known_fence);
    IF its_mode = 0 THEN
      SET @lockfast_until = @lockfast_now + its_ttl + its_delay, @lockfast_offered = 0;
    ELSE
      UPDATE lockfast_claims
         SET ttl_us = its_ttl, delay_us = its_delay, offered = 0,
             until_us = @lockfast_now + its_ttl + its_delay
       WHERE name = lock_name AND holder = id;
    END IF;
  ELSEIF other_mode IS NOT NULL THEN
    SET answer = CONCAT('C\t', other_mode);
  ELSEIF its_floor > @lockfast_now + 60000000 THEN
    SET answer = 'F';
  ELSEIF GREATEST(@lockfast_fence, @lockfast_floor, its_floor) >= 9007199254740991 THEN
    SET answer = 'X';
  ELSEIF NOT may_wait AND known_stage IS NULL AND @lockfast_client IS NOT NULL THEN
    CALL lockfast_seen(lock_name);
    SET answer = CONCAT('T\t', @lockfast_seen);
  ELSE
    CALL lockfast_queue(lock_name, id, its_mode, its_ttl, its_delay, its_floor,
      known_stage IS NOT NULL, may_wait, heir, answer);
  END IF;
  CALL lockfast_close(lock_name, heir);
  SET @lockfast_self = NULL;
  SET @lockfast_answers = CONCAT(@lockfast_answers, at, '\t', answer, '\n');
END
//
CREATE PROCEDURE lockfast_leave(IN at INT, IN lock_name VARBINARY(255), IN id BINARY(16))
  SQL SECURITY INVOKER
BEGIN
  DECLARE known_stage INT;
  DECLARE known_fence BIGINT;
  DECLARE heir BINARY(16);
  DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
  CALL lockfast_open(lock_name, id);
  IF @lockfast_is_asker THEN
    SET known_stage = 1, known_fence = @lockfast_fence;
    SET @lockfast_client = NULL, @lockfast_is_asker = 0, @lockfast_offered = 0,
        @lockfast_until = @lockfast_now;
  ELSEIF @lockfast_crowd > 0 THEN
    SELECT c.stage, c.fence INTO known_stage, known_fence
      FROM lockfast_claims c WHERE c.name = lock_name AND c.holder = id;
    IF known_stage IS NOT NULL THEN
      DELETE FROM lockfast_claims WHERE name = lock_name AND holder = id;
      SET @lockfast_crowd = @lockfast_crowd - 1,
          @lockfast_waiting = @lockfast_waiting - (known_stage IN (0, 3)),
          @lockfast_sharing = @lockfast_sharing - (known_stage = 1),
          @lockfast_asleep = @lockfast_asleep - (known_stage = 3);
    END IF;
  END IF;
  IF @lockfast_watched AND known_stage <> 2 THEN
    CALL lockfast_tell(IF(known_stage = 1, 'r', 'a'), lock_name, LEFT(id, 6),
      IF(known_stage = 1, known_fence, NULL), 0);
  END IF;
  CALL lockfast_settle(lock_name, heir);
  CALL lockfast_close(lock_name, heir);
  SET @lockfast_answers = CONCAT(@lockfast_answers, at, '\t', known_stage <=> 1, '\n');
END
//
CREATE PROCEDURE lockfast_first(
  IN lock_name VARBINARY(255), IN id BINARY(16), IN its_mode INT, IN its_ttl BIGINT,
  IN its_delay BIGINT, IN its_floor BIGINT, OUT is_mine TINYINT)
  SQL SECURITY INVOKER
BEGIN
  DECLARE its_fence BIGINT DEFAULT GREATEST(@lockfast_now, @lockfast_floor + 1, its_floor + 1);
  DECLARE known INT;
  DECLARE CONTINUE HANDLER FOR 1062 SET is_mine = 0;
  SELECT COUNT(*) INTO known FROM lockfast_locks WHERE name = lock_name;
  SET is_mine = known = 0 AND its_mode = 0 AND NOT @lockfast_watched
    AND its_floor <= @lockfast_now + 60000000 AND its_fence < 9007199254740991;
  IF is_mine THEN
    INSERT INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    VALUES (lock_name, its_fence, id, @lockfast_now + its_ttl + its_delay, @lockfast_now, 0);
  END IF;
  IF is_mine THEN
    SET @lockfast_answers = CONCAT('1\tG\t', its_fence, '\n');
  END IF;
END
//
CREATE PROCEDURE lockfast_take(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN holder_hex CHAR(32), IN its_mode INT,
  IN its_ttl BIGINT, IN its_delay BIGINT, IN its_floor BIGINT, IN may_wait TINYINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  take: BEGIN
    DECLARE id BINARY(16) DEFAULT UNHEX(holder_hex);
    DECLARE now_us, watched BIGINT;
    DECLARE is_mine TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    IF NOT COALESCE(
         LENGTH(id) = 16 AND LEFT(id, 6) = UNHEX(LEFT(caller, 12)) AND LENGTH(lock_name) > 0
         AND its_mode >= -1 AND its_ttl BETWEEN 1 AND 31622400000000
         AND its_delay BETWEEN 0 AND 31622400000000 AND its_floor >= 0, 0) THEN
      CALL lockfast_refuse();
    END IF;
    SELECT s.watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
    IF its_mode = 0 AND watched <= now_us AND its_floor <= now_us + 60000000
       AND NOT @@GLOBAL.read_only
       AND IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      UPDATE lockfast_locks
         SET fence = LAST_INSERT_ID(GREATEST(fence + 1, its_floor + 1, now_us)), holder = id,
             until_us = now_us + its_ttl + its_delay, since_us = now_us, offered = 0
       WHERE name = lock_name AND crowd = 0 AND (holder IS NULL OR until_us <= now_us)
         AND fence < 9007199254740991;
      SET is_mine = ROW_COUNT() > 0;
      COMMIT AND NO CHAIN NO RELEASE;
      IF is_mine THEN
        SELECT now_us, CONCAT('1\tG\t', LAST_INSERT_ID(), '\n'), '', 0;
        LEAVE take;
      END IF;
    END IF;
    CALL lockfast_begin(caller);
    CALL lockfast_first(lock_name, id, its_mode, its_ttl, its_delay, its_floor, is_mine);
    IF NOT is_mine THEN
      CALL lockfast_enter(1, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
    END IF;
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_give(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN holder_hex CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  give: BEGIN
    DECLARE now_us, watched BIGINT;
    DECLARE is_plain TINYINT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    SELECT s.watched_us INTO watched FROM lockfast_store s WHERE s.id = 1;
    IF watched <= now_us AND NOT @@GLOBAL.read_only
       AND IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      UPDATE lockfast_locks SET holder = NULL, until_us = now_us, offered = 0
       WHERE name = lock_name AND holder = UNHEX(holder_hex) AND crowd = 0 AND until_us > now_us;
      SET is_plain = ROW_COUNT() > 0;
      COMMIT AND NO CHAIN NO RELEASE;
      IF is_plain THEN
        SELECT now_us, '1\t1\n', '', 0;
        LEAVE give;
      END IF;
    END IF;
    CALL lockfast_begin(caller);
    CALL lockfast_leave(1, lock_name, UNHEX(holder_hex));
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_renew_all(IN renews LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY INVOKER
BEGIN
  DECLARE missed LONGTEXT CHARACTER SET utf8mb4;
  DECLARE lock_name VARBINARY(255);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE renewed INT;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE has_claims TINYINT;
  DECLARE shorter CURSOR FOR
    SELECT DISTINCT l.name
      FROM JSON_TABLE(renews, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
             ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
      LEFT JOIN lockfast_claims c ON c.name = l.name AND c.holder = UNHEX(j.holder)
     WHERE l.waiting > l.asleep
       AND IF(l.holder = UNHEX(j.holder), l.until_us, c.until_us) > now_us + j.ttl + j.delay;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  SELECT COUNT(*) INTO has_claims FROM (SELECT 1 FROM lockfast_claims LIMIT 1) claims;
  IF has_claims THEN
    OPEN shorter;
  END IF;
  UPDATE JSON_TABLE(renews, '$[*]' COLUMNS (
           name VARBINARY(255) PATH '$[0]',
           holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
           ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
    STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     SET l.until_us = now_us + j.ttl + j.delay, l.offered = 0
   WHERE l.holder = UNHEX(j.holder) AND l.until_us > now_us;
  SET renewed = ROW_COUNT();
  IF renewed < JSON_LENGTH(renews) THEN
    IF renewed = 0 AND EXISTS (
         SELECT 1
           FROM JSON_TABLE(renews, '$[*]' COLUMNS (
                  name VARBINARY(255) PATH '$[0]',
                  holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
                  ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
           STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
          WHERE l.holder = UNHEX(j.holder) AND l.until_us > now_us
            AND l.until_us <> now_us + j.ttl + j.delay) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: interrupted';
    END IF;
    UPDATE JSON_TABLE(renews, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]',
             ttl BIGINT PATH '$[2]', delay BIGINT PATH '$[3]')) j
      STRAIGHT_JOIN lockfast_claims c
         ON c.name = j.name AND c.holder = UNHEX(j.holder)
       SET c.until_us = now_us + j.ttl + j.delay, c.offered = 0
     WHERE c.stage = 1 AND c.until_us > now_us;
    SELECT GROUP_CONCAT(j.at, '\t',
             CASE WHEN c.stage = 2 AND c.until_us > now_us THEN CONCAT('R\t', c.reason)
                  WHEN l.holder <> UNHEX(j.holder) AND l.until_us > now_us
                    THEN CONCAT('T\t', HEX(LEFT(l.holder, 6)))
                  ELSE COALESCE(
                    (SELECT CONCAT('T\t', HEX(LEFT(o.holder, 6))) FROM lockfast_claims o
                      WHERE o.name = l.name AND o.stage = 1 AND o.until_us > now_us LIMIT 1),
                    'F') END
             SEPARATOR '\n') INTO missed
      FROM JSON_TABLE(renews, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
      LEFT JOIN lockfast_claims c
             ON c.name = j.name AND c.holder = UNHEX(j.holder)
     WHERE NOT (COALESCE(l.holder = UNHEX(j.holder) AND l.until_us > now_us, 0)
             OR COALESCE(c.stage = 1 AND c.until_us > now_us, 0));
    IF missed IS NOT NULL THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, missed, '\n');
    END IF;
  END IF;
  IF has_claims THEN
    SET is_over = 0;
    FETCH shorter INTO lock_name;
    WHILE NOT is_over DO
      CALL lockfast_open(lock_name, NULL);
      CALL lockfast_lead(lock_name, '', 1);
      CALL lockfast_close(lock_name, NULL);
      SET is_over = 0;
      FETCH shorter INTO lock_name;
    END WHILE;
    CLOSE shorter;
  END IF;
END
//
CREATE PROCEDURE lockfast_take_all(
  IN takes LONGTEXT CHARACTER SET utf8mb4, IN take_count INT)
  SQL SECURITY INVOKER
take_all: BEGIN
  DECLARE at, its_mode, may_wait INT;
  DECLARE granted INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE its_ttl, its_delay, its_floor BIGINT;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE floor_of_all BIGINT DEFAULT @lockfast_floor;
  DECLARE asker BINARY(6) DEFAULT @lockfast_who;
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE grants LONGTEXT CHARACTER SET utf8mb4;
  DECLARE others CURSOR FOR
    SELECT j.at, j.name, UNHEX(j.holder), j.mode, j.ttl, j.delay, j.floor, j.may_wait
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]',
             may_wait INT PATH '$[6]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE granted = 0 OR j.mode <> 0 OR l.since_us <> now_us OR NOT l.holder <=> UNHEX(j.holder)
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched AND floor_of_all < 9007199254740991 THEN
    UPDATE JSON_TABLE(takes, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
       SET l.fence = now_us, l.holder = UNHEX(j.holder), l.until_us = now_us + j.ttl + j.delay,
           l.since_us = now_us, l.offered = 0
     WHERE j.mode = 0 AND j.floor < now_us AND l.fence < now_us AND l.crowd = 0
       AND LENGTH(j.name) > 0 AND LENGTH(UNHEX(j.holder)) = 16
       AND LEFT(UNHEX(j.holder), 6) = asker AND j.ttl BETWEEN 1 AND 31622400000000
       AND j.delay BETWEEN 0 AND 31622400000000
       AND (l.holder IS NULL OR l.until_us <= now_us);
    IF ROW_COUNT() = take_count THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, '*\tG\t', now_us, '\n');
      LEAVE take_all;
    END IF;
    INSERT IGNORE INTO lockfast_locks (name, fence, holder, until_us, since_us, crowd)
    SELECT j.name, GREATEST(now_us, floor_of_all + 1, j.floor + 1), UNHEX(j.holder),
           now_us + j.ttl + j.delay, now_us, 0
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]',
             ttl BIGINT PATH '$[3]', delay BIGINT PATH '$[4]', floor BIGINT PATH '$[5]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE l.name IS NULL AND j.mode = 0 AND j.floor BETWEEN 0 AND now_us + 60000000
       AND LENGTH(j.name) > 0 AND LENGTH(UNHEX(j.holder)) = 16
       AND LEFT(UNHEX(j.holder), 6) = asker AND j.ttl BETWEEN 1 AND 31622400000000
       AND j.delay BETWEEN 0 AND 31622400000000;
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\tG\t', l.fence SEPARATOR '\n') INTO granted, grants
      FROM JSON_TABLE(takes, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]', mode INT PATH '$[2]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE j.mode = 0 AND l.since_us = now_us AND l.holder = UNHEX(j.holder);
    IF granted > 0 THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, grants, '\n');
    END IF;
  END IF;
  IF granted < take_count THEN
    OPEN others;
    FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    WHILE NOT is_over DO
      CALL lockfast_enter(at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait);
      FETCH others INTO at, lock_name, id, its_mode, its_ttl, its_delay, its_floor, may_wait;
    END WHILE;
    CLOSE others;
  END IF;
END
//
CREATE PROCEDURE lockfast_give_all(
  IN gives LONGTEXT CHARACTER SET utf8mb4, IN give_count INT)
  SQL SECURITY INVOKER
give_all: BEGIN
  DECLARE at INT;
  DECLARE plain INT DEFAULT 0;
  DECLARE lock_name VARBINARY(255);
  DECLARE id BINARY(16);
  DECLARE is_over TINYINT DEFAULT 0;
  DECLARE answers LONGTEXT CHARACTER SET utf8mb4;
  DECLARE now_us BIGINT DEFAULT @lockfast_now;
  DECLARE others CURSOR FOR
    SELECT j.at, j.name, UNHEX(j.holder)
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      LEFT JOIN lockfast_locks l ON l.name = j.name
     WHERE plain = 0 OR l.since_us <> j.at OR l.until_us <> now_us OR l.name IS NULL
     ORDER BY j.at;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
  IF NOT @lockfast_watched THEN
    UPDATE JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]',
             holder CHAR(32) CHARACTER SET latin1 PATH '$[1]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
       SET l.holder = NULL, l.until_us = now_us, l.since_us = j.at, l.offered = 0
     WHERE l.holder = UNHEX(j.holder) AND l.crowd = 0 AND l.until_us > now_us;
    IF ROW_COUNT() = give_count THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, '*\t1\n');
      LEAVE give_all;
    END IF;
    SELECT COUNT(*), GROUP_CONCAT(j.at, '\t1' SEPARATOR '\n') INTO plain, answers
      FROM JSON_TABLE(gives, '$[*]' COLUMNS (
             at FOR ORDINALITY,
             name VARBINARY(255) PATH '$[0]')) j
      STRAIGHT_JOIN lockfast_locks l ON l.name = j.name
     WHERE l.since_us = j.at AND l.until_us = now_us;
    IF plain > 0 THEN
      SET @lockfast_answers = CONCAT(@lockfast_answers, answers, '\n');
    END IF;
  END IF;
  IF plain < give_count THEN
    OPEN others;
    FETCH others INTO at, lock_name, id;
    WHILE NOT is_over DO
      CALL lockfast_leave(at, lock_name, id);
      FETCH others INTO at, lock_name, id;
    END WHILE;
    CLOSE others;
  END IF;
END
//
CREATE PROCEDURE lockfast_work(
  IN caller CHAR(32), IN renews LONGTEXT CHARACTER SET utf8mb4,
  IN takes LONGTEXT CHARACTER SET utf8mb4, IN take_count INT,
  IN gives LONGTEXT CHARACTER SET utf8mb4, IN give_count INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    IF renews <> '' THEN
      CALL lockfast_renew_all(renews);
    END IF;
    SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
    IF take_count > 0 THEN
      CALL lockfast_take_all(takes, take_count);
    END IF;
    SET @lockfast_answers = CONCAT(@lockfast_answers, '\n');
    IF give_count > 0 THEN
      CALL lockfast_give_all(gives, give_count);
    END IF;
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_revoke(
  IN caller CHAR(32), IN lock_name VARBINARY(255), IN expected BIGINT,
  IN why VARCHAR(1024) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE id, heir BINARY(16);
    DECLARE its_fence BIGINT;
    DECLARE is_expected, is_over TINYINT DEFAULT 0;
    DECLARE losers CURSOR FOR
      SELECT c.holder, c.fence FROM lockfast_claims c WHERE c.name = lock_name AND c.stage = 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    CALL lockfast_open(lock_name, NULL);
    CALL lockfast_seen(lock_name);
    SELECT COUNT(*) > 0 INTO is_expected FROM lockfast_claims c
     WHERE c.name = lock_name AND c.stage = 1 AND (expected = 0 OR c.fence = expected);
    IF LOCATE(';', @lockfast_seen) = 0 THEN
      SET @lockfast_answers = 'N';
    ELSEIF NOT is_expected AND NOT (@lockfast_client IS NOT NULL
                                    AND (expected = 0 OR @lockfast_fence = expected)) THEN
      SET @lockfast_answers = CONCAT('O\t', @lockfast_seen);
    ELSE
      SET @lockfast_answers = CONCAT('V\t', @lockfast_seen);
      IF @lockfast_client IS NOT NULL THEN
        INSERT INTO lockfast_claims (name, holder, client, ticket, mode, stage, fence, ttl_us,
                                     delay_us, floor, until_us, since_us, reason)
        SELECT l.name, l.holder, LEFT(l.holder, 6), 0, 0, 1, l.fence, 0, 0, 0, l.until_us,
               l.since_us, ''
          FROM lockfast_locks l WHERE l.name = lock_name;
        SET @lockfast_crowd = @lockfast_crowd + 1, @lockfast_sharing = @lockfast_sharing + 1,
            @lockfast_client = NULL, @lockfast_offered = 0, @lockfast_until = @lockfast_now;
      END IF;
      SET is_over = 0;
      OPEN losers;
      FETCH losers INTO id, its_fence;
      WHILE NOT is_over DO
        CALL lockfast_push(LEFT(id, 6), CONCAT_WS('\t', 'R', HEX(id), why), 1);
        IF @lockfast_watched THEN
          CALL lockfast_tell('v', lock_name, LEFT(id, 6), its_fence, 0);
        END IF;
        FETCH losers INTO id, its_fence;
      END WHILE;
      CLOSE losers;
      UPDATE lockfast_claims SET stage = 2, reason = why WHERE name = lock_name AND stage = 1;
      SET @lockfast_sharing = 0;
      CALL lockfast_settle(lock_name, heir);
    END IF;
    CALL lockfast_close(lock_name, heir);
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_look(IN names LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT;
  CALL lockfast_clock(now_us);
  SELECT j.at - 1,
         CONCAT_WS(';',
           (SELECT COUNT(*) FROM lockfast_claims c JOIN lockfast_clients k ON k.client = c.client
             WHERE c.name = l.name AND c.stage IN (0, 3) AND c.until_us > now_us
               AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(k.who))) IS NOT NULL),
           IF(l.holder IS NOT NULL AND l.until_us > now_us,
              CONCAT_WS('.', 0, l.fence, l.since_us, l.until_us - now_us, HEX(LEFT(l.holder, 6))),
              NULL),
           (SELECT GROUP_CONCAT(CONCAT_WS('.', c.mode, c.fence, c.since_us, c.until_us - now_us,
                     HEX(c.client)) ORDER BY c.ticket SEPARATOR ';')
              FROM lockfast_claims c
             WHERE c.name = l.name AND c.stage = 1 AND c.until_us > now_us))
    FROM JSON_TABLE(names, '$[*]' COLUMNS (
           at FOR ORDINALITY,
           name VARBINARY(255) PATH '$')) j
    JOIN lockfast_locks l ON l.name = j.name
   ORDER BY j.at;
END
//
CREATE PROCEDURE lockfast_list(
  IN prefix VARBINARY(1024), IN after_name VARBINARY(255), IN at_most INT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT;
  CALL lockfast_clock(now_us);
  SELECT l.name
    FROM lockfast_locks l
   WHERE l.name >= prefix AND l.name > after_name AND LEFT(l.name, LENGTH(prefix)) = prefix
     AND ((l.holder IS NOT NULL AND l.until_us > now_us)
       OR (l.crowd > 0 AND EXISTS (
             SELECT 1 FROM lockfast_claims c LEFT JOIN lockfast_clients k ON k.client = c.client
              WHERE c.name = l.name AND c.until_us > now_us
                AND (c.stage = 1 OR (c.stage IN (0, 3) AND k.who IS NOT NULL
                  AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(k.who))) IS NOT NULL)))))
   ORDER BY l.name LIMIT at_most;
END
//
CREATE PROCEDURE lockfast_labels(IN clients LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  SELECT HEX(c.client), c.program, c.host, c.pid, c.text
    FROM JSON_TABLE(clients, '$[*]' COLUMNS (client CHAR(12) CHARACTER SET latin1 PATH '$')) j
    JOIN lockfast_clients c ON c.client = UNHEX(j.client);
END
//
CREATE PROCEDURE lockfast_watch(IN caller CHAR(32), IN lasts_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE now_us, until_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    SET until_us = now_us + LEAST(GREATEST(lasts_us, 0), 60000000);
    IF NOT EXISTS (SELECT 1 FROM lockfast_clients c
                    WHERE c.client = UNHEX(LEFT(caller, 12)) AND c.who = UNHEX(caller)) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    UPDATE lockfast_clients c SET c.watches_us = until_us WHERE c.client = UNHEX(LEFT(caller, 12));
    UPDATE lockfast_store s SET s.watched_us = GREATEST(s.watched_us, until_us) WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
//
CREATE PROCEDURE lockfast_read(IN value_name VARBINARY(255))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE now_us BIGINT;
    IF @@GLOBAL.read_only THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: the server is read-only';
    END IF;
    CALL lockfast_clock(now_us);
    SELECT v.version, v.bytes, COALESCE(v.until_us - now_us, 0) FROM lockfast_values v
     WHERE v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
//
CREATE PROCEDURE lockfast_write(
  IN caller CHAR(32), IN value_name VARBINARY(255), IN expected_hex CHAR(32), IN own_hex CHAR(32),
  IN put MEDIUMBLOB, IN keep_us BIGINT)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  writing: BEGIN
    DECLARE own VARBINARY(16) DEFAULT UNHEX(own_hex);
    DECLARE expected VARBINARY(16) DEFAULT UNHEX(NULLIF(expected_hex, ''));
    DECLARE found VARBINARY(16);
    DECLARE now_us, its_end BIGINT;
    DECLARE is_row, is_done TINYINT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    IF NOT COALESCE(
         LENGTH(own) = 16 AND (expected_hex = '' OR LENGTH(expected) = 16)
         AND LENGTH(value_name) > 0 AND COALESCE(LENGTH(put), 0) <= 65536
         AND COALESCE(keep_us, 0) BETWEEN 0 AND 1000000000000000000, 0) THEN
      CALL lockfast_refuse();
    END IF;
    CALL lockfast_begin(caller);
    comparing: LOOP
      SET is_row = 0, found = NULL, its_end = NULL;
      SELECT 1, v.version, v.until_us INTO is_row, found, its_end
        FROM lockfast_values v WHERE v.name = value_name FOR UPDATE;
      CALL lockfast_clock(now_us);
      IF found = own THEN
        LEAVE comparing;
      ELSEIF put IS NULL AND NOT is_row AND (is_done OR expected IS NULL) THEN
        SET is_done = 1;
        LEAVE comparing;
      END IF;
      IF its_end <= now_us THEN
        SET found = NULL;
      END IF;
      IF NOT found <=> expected THEN
        SELECT now_us, '0', '', 0, v.version, v.bytes, COALESCE(v.until_us - now_us, 0)
          FROM (SELECT 1) one
          LEFT JOIN lockfast_values v
                 ON v.name = value_name AND (v.until_us IS NULL OR v.until_us > now_us);
        COMMIT AND NO CHAIN NO RELEASE;
        LEAVE writing;
      END IF;
      IF put IS NULL THEN
        DELETE FROM lockfast_values WHERE name = value_name;
      ELSEIF is_row THEN
        UPDATE lockfast_values
           SET version = own, bytes = put, until_us = now_us + keep_us WHERE name = value_name;
      ELSE
        INSERT INTO lockfast_values (name, version, bytes, until_us)
        VALUES (value_name, own, put, now_us + keep_us) ON DUPLICATE KEY UPDATE name = value_name;
      END IF;
      SET is_done = 1;
    END LOOP;
    IF is_done AND @lockfast_watched THEN
      CALL lockfast_tell('c', value_name, @lockfast_who, NULL, 0);
    END IF;
    SET @lockfast_answers = '1';
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_sweep()
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  sweep: BEGIN
    DECLARE now_us, old_floor, new_floor BIGINT;
    DECLARE idle_us BIGINT DEFAULT 60000000;
    DECLARE gone, parts INT DEFAULT 0;
    DECLARE first_name, last_name VARBINARY(255);
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    UPDATE lockfast_store s SET s.swept_us = now_us
     WHERE s.id = 1 AND NOT (s.swept_us > now_us - idle_us AND s.swept_us <= now_us);
    IF ROW_COUNT() = 0 THEN
      COMMIT AND NO CHAIN NO RELEASE;
      LEAVE sweep;
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
    SELECT s.floor, s.swept_name INTO old_floor, first_name FROM lockfast_store s WHERE s.id = 1;
    DELETE FROM lockfast_mail WHERE sent_us < now_us - idle_us;
    COMMIT AND NO CHAIN NO RELEASE;
    DELETE FROM lockfast_clients WHERE seen_us < now_us - 86400000000
       AND IS_USED_LOCK(CONCAT('lockfast:a:', HEX(who))) IS NULL
     LIMIT 1000;
    COMMIT AND NO CHAIN NO RELEASE;
    ended: LOOP
      DELETE FROM lockfast_values WHERE until_us <= now_us LIMIT 1000;
      SET gone = ROW_COUNT(), parts = parts + 1;
      COMMIT AND NO CHAIN NO RELEASE;
      IF gone < 1000 OR parts >= 10 THEN
        LEAVE ended;
      END IF;
    END LOOP;
    SELECT MAX(name) INTO last_name
      FROM (SELECT name FROM lockfast_locks WHERE name > first_name ORDER BY name LIMIT 10000) a;
    IF last_name IS NOT NULL THEN
      DELETE FROM lockfast_locks
       WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us
         AND fence <= old_floor;
      COMMIT AND NO CHAIN NO RELEASE;
      SELECT MAX(fence) INTO new_floor FROM lockfast_locks
       WHERE name > first_name AND name <= last_name AND crowd = 0 AND until_us < now_us - idle_us;
    END IF;
    UPDATE lockfast_store s
       SET s.floor = GREATEST(s.floor, COALESCE(new_floor, 0)),
           s.swept_name = IF(new_floor IS NOT NULL, first_name, COALESCE(last_name, ''))
     WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
//
CREATE PROCEDURE lockfast_finish(IN caller CHAR(32))
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  BEGIN
    DECLARE lock_name VARBINARY(255);
    DECLARE heir BINARY(16);
    DECLARE is_over TINYINT DEFAULT 0;
    DECLARE stale CURSOR FOR
      SELECT DISTINCT c.name FROM lockfast_claims c WHERE c.until_us < @lockfast_now - 60000000
       ORDER BY c.name LIMIT 100;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET is_over = 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_begin(caller);
    OPEN stale;
    SET is_over = 0;
    FETCH stale INTO lock_name;
    WHILE NOT is_over DO
      SET heir = NULL;
      CALL lockfast_open(lock_name, NULL);
      CALL lockfast_settle(lock_name, heir);
      CALL lockfast_close(lock_name, heir);
      SET is_over = 0;
      FETCH stale INTO lock_name;
    END WHILE;
    CLOSE stale;
    CALL lockfast_end();
  END;
END
//
CREATE PROCEDURE lockfast_enrol(
  IN caller CHAR(32), IN its_program VARCHAR(255) CHARACTER SET utf8mb4,
  IN its_host VARCHAR(255) CHARACTER SET utf8mb4, IN its_pid INT UNSIGNED,
  IN its_text VARCHAR(128) CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE EXIT HANDLER FOR 1568
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: call this outside of a transaction';
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
  enrol: BEGIN
    DECLARE now_us BIGINT;
    DECLARE known BINARY(16);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    CALL lockfast_clock(now_us);
    IF CHAR_LENGTH(caller) = 12 THEN
      SELECT s.version, now_us, s.serves FROM lockfast_store s WHERE s.id = 1;
      LEAVE enrol;
    END IF;
    IF NOT COALESCE(CHAR_LENGTH(caller) = 32 AND HEX(UNHEX(caller)) = caller, 0) THEN
      SIGNAL SQLSTATE '45000'
         SET MESSAGE_TEXT = 'lockfast: a client is 12 digits and a secret of 20, in capitals';
    END IF;
    INSERT INTO lockfast_clients (client, who, program, host, pid, text, seen_us, watches_us)
    VALUES (UNHEX(LEFT(caller, 12)), UNHEX(caller), its_program, its_host, its_pid, its_text,
            now_us, 0)
    ON DUPLICATE KEY UPDATE seen_us = now_us;
    SELECT c.who INTO known FROM lockfast_clients c WHERE c.client = UNHEX(LEFT(caller, 12));
    COMMIT AND NO CHAIN NO RELEASE;
    IF NOT known <=> UNHEX(caller) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: another one is this client';
    END IF;
    CALL lockfast_own('a', caller);
    IF NOT IS_USED_LOCK(CONCAT('lockfast:a:', caller)) <=> CONNECTION_ID() THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'lockfast: enrol';
    END IF;
    CALL lockfast_own('w', caller);
    SELECT s.version, now_us, s.serves FROM lockfast_store s WHERE s.id = 1;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
//
UPDATE lockfast_store SET version = 3, serves = 2

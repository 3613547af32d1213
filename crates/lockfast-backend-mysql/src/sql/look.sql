-- Looks at locks by their names: who has each and how many wait, as lockfast_seen does.
CREATE PROCEDURE lockfast_look(IN names LONGTEXT CHARACTER SET utf8mb4)
  SQL SECURITY DEFINER
BEGIN
  DECLARE now_us BIGINT;
  CALL lockfast_clock(now_us);
  SELECT j.at - 1,
         CONCAT_WS(';',
           -- Of those who are gone nobody waits.
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

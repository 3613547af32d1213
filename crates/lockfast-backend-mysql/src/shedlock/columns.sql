-- The columns of a table (its database, or the present one; its name): the type of each, how many
-- characters or digits of a second it holds, its character set, and whether it is unique by itself.
SELECT c.COLUMN_NAME, LOWER(c.DATA_TYPE), CAST(IFNULL(c.CHARACTER_MAXIMUM_LENGTH, 0) AS CHAR),
  CAST(IFNULL(c.DATETIME_PRECISION, 0) AS CHAR), IFNULL(c.CHARACTER_SET_NAME, ''),
  IF(EXISTS (SELECT 1 FROM information_schema.STATISTICS s
    WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME AND s.NON_UNIQUE = 0
      AND s.COLUMN_NAME = c.COLUMN_NAME AND s.SUB_PART IS NULL
      AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS o
        WHERE o.TABLE_SCHEMA = s.TABLE_SCHEMA AND o.TABLE_NAME = s.TABLE_NAME
          AND o.INDEX_NAME = s.INDEX_NAME AND o.SEQ_IN_INDEX > 1)), '1', '0'),
  IF(c.DATA_TYPE = 'timestamp'
    AND TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) <> 0, '1', '0')
FROM information_schema.COLUMNS c
WHERE c.TABLE_SCHEMA = IFNULL(?, DATABASE()) AND c.TABLE_NAME = ?

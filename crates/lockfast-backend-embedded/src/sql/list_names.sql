SELECT DISTINCT name
  FROM claim
 WHERE name >= ?1 AND name > ?2 AND stage <> 2 AND ends_ns > ?3
 ORDER BY name

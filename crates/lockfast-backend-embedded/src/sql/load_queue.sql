SELECT ticket, holder, client, mode, stage, fence, from_ns, since_us,
       ttl_ns, delay_ns, ends_ns, floor, detached, reason
  FROM claim
 WHERE name = ?1
 ORDER BY ticket

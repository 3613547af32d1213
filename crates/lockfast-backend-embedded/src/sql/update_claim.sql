UPDATE claim
   SET holder = ?2, client = ?3, mode = ?4, stage = ?5, fence = ?6, from_ns = ?7, since_us = ?8,
       ttl_ns = ?9, delay_ns = ?10, ends_ns = ?11, floor = ?12, detached = ?13, reason = ?14
 WHERE ticket = ?1 AND name = ?15

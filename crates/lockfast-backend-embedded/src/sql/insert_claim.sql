INSERT INTO claim (ticket, holder, client, mode, stage, fence, from_ns, since_us,
                   ttl_ns, delay_ns, ends_ns, floor, detached, reason, name)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)

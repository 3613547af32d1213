-- Labels that no claim shows any more, of clients that are gone.
DELETE FROM client
 WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.client = client.id)

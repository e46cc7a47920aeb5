-- name: reserve_numbers
-- Move the last number of a column by `advance`, from `base` if that is later. Returns no row if the number would exceed
-- `limit`, which is `advance` before the end of the type.
INSERT INTO dl_identity_numbers AS known (table_id, column_name, last_number)
VALUES ($table_id, $column_name, CAST($base AS BIGINT) + CAST($advance AS BIGINT))
ON CONFLICT (table_id, column_name) DO UPDATE SET last_number = CASE
    WHEN CAST($step AS BIGINT) > 0 AND known.last_number < CAST($base AS BIGINT) THEN CAST($base AS BIGINT)
    WHEN CAST($step AS BIGINT) < 0 AND known.last_number > CAST($base AS BIGINT) THEN CAST($base AS BIGINT)
    ELSE known.last_number END + CAST($advance AS BIGINT)
  WHERE CASE WHEN CAST($step AS BIGINT) > 0 THEN known.last_number <= CAST($limit AS BIGINT)
    ELSE known.last_number >= CAST($limit AS BIGINT) END
RETURNING last_number;

-- name: reserved_numbers
SELECT column_name, last_number FROM dl_identity_numbers WHERE table_id = $table_id ORDER BY column_name;

-- name: discard_reserved_numbers
DELETE FROM dl_identity_numbers WHERE table_id = $table_id;

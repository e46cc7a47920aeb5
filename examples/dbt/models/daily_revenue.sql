-- A table of the catalog, merged by its key in one commit.
{{ config(materialized='external', plugin='lake', key='day') }}
select day, sum(amount)::bigint as revenue from {{ ref('order_lines') }} group by day

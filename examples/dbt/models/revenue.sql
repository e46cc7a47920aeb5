-- A table of the catalog, replaced in one commit.
{{ config(materialized='external', plugin='lake') }}
select customer, sum(amount)::bigint as revenue from {{ ref('order_lines') }} group by customer

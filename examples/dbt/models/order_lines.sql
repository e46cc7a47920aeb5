-- An ordinary model: it stays in DuckDB.
select orders.*, customers.name as customer
from {{ source('lake', 'orders') }} as orders
join {{ source('lake', 'customers') }} as customers using (customer_id)

-- The rows that are private. When the table is there, its post-hooks hand it to a job of Dapple as a file, and run it.
{{ config(materialized='table', post_hook=[
    "COPY (SELECT age, hours FROM {{ this }}) TO '" ~ env_var('DAPPLE_DBT') ~ "/rows.parquet' (FORMAT parquet)",
    "SELECT dapple('fit', '" ~ env_var('DAPPLE_DBT') ~ "/job.yaml', '" ~ env_var('DAPPLE_DBT') ~ "/fit', '" ~ var('run_id') ~ "')",
]) }}

SELECT
    20.0 + 10.0 * (range % 3) + 2.0 * sin(range) AS age,
    30.0 + 5.0 * (range % 3) + cos(range) AS hours
FROM range(3000)

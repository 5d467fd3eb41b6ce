-- depends_on: {{ ref('visits') }}
-- Released: may be shown to whoever may see the result.
SELECT cluster, center, noisy_size
FROM read_parquet('{{ env_var("DAPPLE_DBT") }}/fit/centers.parquet')

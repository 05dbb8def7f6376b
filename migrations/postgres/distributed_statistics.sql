-- Gives the parts of distributed tables, on all nodes, the statistics for the planner that their
-- tables have in the schema. Citus passes these options on neither when it distributes a table
-- nor when it moves a part to another node.
SELECT count(*) FILTER (WHERE NOT part.success) AS failed
  FROM (SELECT a.attrelid::regclass AS name,
               string_agg(format('ALTER COLUMN %I SET (n_distinct = 1)', a.attname), ', ') AS columns
          FROM pg_attribute a JOIN pg_dist_partition d ON d.logicalrelid = a.attrelid AND d.partmethod = 'h'
         WHERE a.attoptions @> ARRAY['n_distinct=1']
         GROUP BY a.attrelid) changed
 CROSS JOIN LATERAL run_command_on_shards(changed.name, 'ALTER TABLE %s ' || changed.columns) part;

-- Health of a BenchmarkRun or BenchmarkSuite for Argo CD, by the conditions of kstatus.
local health = {status = "Progressing", message = "waiting for the operator"}
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.message}
  elseif condition.type == "Ready" then
    health.message = condition.message
    health.status = condition.status == "True" and "Healthy" or "Progressing"
  end
end
return health

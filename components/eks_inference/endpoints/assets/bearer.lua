-- Brings the key of a client into the one form that the filter of keys reads. That filter knows no other case of "Bearer", and takes a
-- header without it for a key. Anthropic's clients send x-api-key.
function envoy_on_request(request)
  local headers = request:headers()
  local given = headers:get("authorization")
  local key = given and given:match("^[Bb][Ee][Aa][Rr][Ee][Rr] +(%S+)$")
  if not given and (headers:get(":path") or ""):find("^/v1/messages") then
    key = headers:get("x-api-key")
  end
  headers:remove("authorization")
  headers:remove("x-api-key")
  if key then
    headers:add("authorization", "Bearer " .. key)
  end
end

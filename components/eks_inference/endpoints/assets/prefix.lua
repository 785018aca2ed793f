-- Names how a conversation begins, by which Envoy picks its pod: the next turn repeats it, and that pod has it in its cache.
-- A hint and no more: a wrong one costs a pod the work of reading a prompt again. So it parses no JSON.
local SEARCHED = 65536 -- bytes of a request
local LONGEST = 256 -- bytes of the name

-- The first thing that a user says, up to the end of its object; else the beginning of a prompt.
local function beginning(text)
  local _, at = text:find('"role"%s*:%s*"user"')
  if at then
    return text:match("^[^}]*", at + 1)
  end
  for _, field in ipairs({ "prompt", "input", "messages" }) do
    _, at = text:find('"' .. field .. '"%s*:%s*')
    if at then
      return text:sub(at + 1)
    end
  end
end

function envoy_on_request(request)
  -- Other bodies may be streams, which must not be held up.
  if not (request:headers():get("content-type") or ""):lower():find("^application/json") then
    return
  end
  local body = request:body()
  local found = body and beginning(body:getBytes(0, math.min(body:length(), SEARCHED)))
  if found then
    request:streamInfo():dynamicMetadata():set("openai", "prefix", request:base64Escape(found:sub(1, LONGEST)))
  end
end

// Ranges through the official NVTX header, as a program has them.
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <stddef.h>
#include <stdio.h>

namespace {

struct Sent {
  int peer;
  size_t bytes;
};

// A schema that leaves the offsets and the id to the tool.
uint64_t register_schema(nvtxDomainHandle_t domain) {
  const nvtxPayloadSchemaEntry_t entries[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "peer", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "bytes", nullptr, 0, 0, nullptr, nullptr}};
  nvtxPayloadSchemaAttr_t schema = {};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = 2;
  schema.payloadStaticSize = sizeof(Sent);
  return nvtxPayloadSchemaRegister(domain, &schema);
}

}  // namespace

int main() {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("official");
  nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered");
  printf("%d", nvtxRangePushA("plain"));
  printf(" %d", nvtxRangePushW(L"w\u00efde"));
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = text;
  event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  event.payload.dValue = 0.5;
  printf(" %d", nvtxDomainRangePushEx(domain, &event));
  printf(" %d", nvtxDomainRangePop(domain));

  Sent sent{1, 65536};
  nvtxPayloadData_t data{register_schema(domain), sizeof(sent), &sent};
  event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  event.reserved0 = 1;
  event.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
  nvtxDomainRangePushEx(domain, &event);
  nvtxDomainRangePop(domain);
  nvtxMarkA("mark");
  nvtxRangeEnd(nvtxRangeStartA("started"));
  printf(" %d", nvtxRangePop());
  printf(" %d\n", nvtxRangePop());
  return 0;
}

# holdfast-tool generate and eval.
holdfast_layer(tool_model COLD
  SOURCES converse.cpp eval.cpp generate.cpp open_model.cpp prompts.cpp writer.cpp
  LINKS holdfast::infer holdfast::weights holdfast::chat holdfast::text
  PRIVATE_LINKS holdfast::tool_ckpt holdfast::tool_interrupt holdfast::corpus nlohmann_json::nlohmann_json)
target_sources(holdfast-tool PRIVATE model_verbs.cpp)
target_link_libraries(holdfast-tool PRIVATE holdfast::tool_model)

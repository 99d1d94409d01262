# holdfast-tool ckpt: the library is apart from the verbs so that tests can call it.
holdfast_layer(tool_ckpt
  SOURCES ckpt.cpp ckpt_convert.cpp ckpt_dcp.cpp ckpt_diff.cpp ckpt_export.cpp ckpt_folder.cpp ckpt_keep.cpp ckpt_paths.cpp merged_model.cpp run_settings.cpp
  LINKS holdfast::base
  PRIVATE_LINKS holdfast::tool_interrupt holdfast::weights holdfast::checkpoint holdfast::config holdfast::control holdfast::data holdfast::text holdfast::corpus nlohmann_json::nlohmann_json)
target_sources(holdfast-tool PRIVATE ckpt_verbs.cpp named_run.cpp)
target_link_libraries(holdfast-tool PRIVATE holdfast::tool_ckpt)

# Options and prototxt made into what a job runs.
IN_SIM := exchange_config

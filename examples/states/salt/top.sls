base:
  '*':
    - base
    - database
  'G@kernel:Linux':
    - web

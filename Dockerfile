# kgem in a container. Without a command it serves the run folder that is mounted at /run-folder (docs/service.md).
# Not built yet by its authors, who had no Docker at hand.
FROM python:3.13-slim AS build
# The index of PyTorch's CPU builds, as its installation page names it. Without it pip takes the build for CUDA: 5 GB more.
ARG TORCH_INDEX=""
WORKDIR /source
COPY constraints.txt ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.13-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH KGEM_CACHE=/tmp/kgem MPLCONFIGDIR=/tmp/matplotlib
USER 1000
EXPOSE 8000
ENTRYPOINT ["kgem"]
CMD ["serve", "/run-folder", "--host", "0.0.0.0", "--port", "8000", "--allow-remote"]
